"""Trains end-to-end memory networks on PyTorch, one task after another.

A plain port of `rmc_jax.models.MemN2N` with adjacent tying and the position
encoding of the authors' code. Every model has the sizes of its task, without
padding. A step updates the model of each task once.
"""
# pyright: reportMissingImports=false

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from experiments.benchmarks.workers import serve

_BATCH, _RATE, _CLIP = 32, 0.005, 40.0


def load(request, arrays):
  """Loads a model and the questions of every task."""
  device = 'cuda' if request['device'] == 'gpu' else 'cpu'
  padded_vocabulary = int(arrays['sizes'][:, 0].max())
  models, tasks, optimizers = [], [], []
  for g, sizes in enumerate(arrays['sizes'].tolist()):
    model = MemN2N(arrays['weights'], sizes, padded_vocabulary).to(device)
    models.append(model)
    tasks.append([each.to(device) for each in _questions(arrays, g, sizes)])
    optimizers.append(torch.optim.SGD(model.parameters(), lr=_RATE))

  def step():
    total = 0.0
    for model, task, optimizer in zip(models, tasks, optimizers, strict=True):
      chosen = torch.randint(len(task[0]), (_BATCH,), device=device)
      optimizer.zero_grad(set_to_none=True)
      loss = model.loss(*[each[chosen] for each in task])
      loss.backward()
      for table in model.tables:
        nn.utils.clip_grad_norm_([table], _CLIP)
      optimizer.step()
      total += loss.item()  # Waits for the device, as a log does.
    return total

  def results():
    losses, gradients = [], []
    for model, task in zip(models, tasks, strict=True):
      model.reset()
      model.zero_grad(set_to_none=True)
      loss = model.loss(*[each[:_BATCH] for each in task])
      loss.backward()
      losses.append(loss.item())
      gradients.append(model.padded_gradients())
    return {'loss': np.array(losses), 'gradients': np.array(gradients)}

  facts = {'items': _BATCH * len(models), 'batches': 1}
  about = {'torch': torch.__version__, 'device': device}
  return serve.Implementation(about, lambda _: (step, facts), results)


def _questions(arrays, g, sizes):
  """Returns story, question, time and answer of a task, without padding."""
  _, m, j = sizes
  position = np.arange(1, m + 1)
  time = np.where(position <= arrays['length'][g][:, None], position, 0)
  return [
    torch.from_numpy(np.ascontiguousarray(each, np.int64))
    for each in (
      arrays['story'][g, :, :m, :j],
      arrays['question'][g, :, :j],
      time,
      arrays['answer'][g],
    )
  ]


class MemN2N(nn.Module):
  """The model; see rmc_jax/models/memn2n.py.

  Table k has the rows of nil and the words, then those of the times.
  """

  def __init__(self, weights, sizes, padded_vocabulary):
    super().__init__()
    v, m, j = sizes
    words, times = np.arange(v), padded_vocabulary + np.arange(m)
    self.rows = np.concatenate([words, times])
    self.weights = torch.from_numpy(weights)
    self.vocabulary = v
    d = weights.shape[-1]
    self.tables = nn.ParameterList(
      [nn.Parameter(torch.empty(v + m, d)) for _ in weights]
    )
    self.reset()
    columns = j + 1
    centred = torch.arange(1, columns + 1) - (columns + 1) / 2
    units = torch.arange(1, d + 1) - (d + 1) / 2
    position = 1 + 4 * centred[:, None] * units / (d * columns)  # [J + 1, d]
    self.register_buffer('position', position)

  def reset(self):
    """Sets the initial weights; nil is the zero vector."""
    for table, weights in zip(self.tables, self.weights, strict=True):
      table.data.copy_(weights[self.rows])
      table.data[0] = 0.0

  def loss(self, story, question, time, answer):
    """Returns the sum over the batch."""
    u = self.embed(self.tables[0], question)
    row = torch.where(time > 0, time + (self.vocabulary - 1), 0)
    memories = [
      self.embed(table, story)
      + F.embedding(row, table, padding_idx=0) * self.position[-1]
      for table in self.tables
    ]
    for k in range(len(memories) - 1):
      scores = torch.einsum('bd,bmd->bm', u, memories[k])
      u = u + torch.einsum('bm,bmd->bd', scores.softmax(-1), memories[k + 1])
    return F.cross_entropy(u @ self.tables[-1].T, answer, reduction='sum')

  def embed(self, table, ids):
    """Embeds sentences [..., J]."""
    words = F.embedding(ids, table, padding_idx=0)  # [..., J, d]
    return (words * self.position[:-1]).sum(-2)

  def padded_gradients(self):
    """Returns the gradients in arrays of the shape of the weights."""
    padded = np.zeros(self.weights.shape, np.float32)
    for k, table in enumerate(self.tables):
      padded[k, self.rows] = table.grad.cpu().numpy()
    padded[:, 0] = 0.0  # Nil is no parameter.
    return padded


if __name__ == '__main__':
  serve.serve(load)
