"""Unrolls on PyTorch: a plain port of our core, and the fused LSTM.

The port computes what `rmc_jax.RelationalMemory` does in the same two parts:
`project`, for all inputs at once, and `step`, in a Python loop. It has one
block of attention, which is all that the sizes need.
"""
# pyright: reportMissingImports=false

import torch
from torch import nn
from torch.nn import functional as F

from experiments.benchmarks.workers import serve

# The names of weight and bias in Haiku. torch.nn.Linear stores the transposed
# matrix.
_LEAVES = {nn.Linear: ('w', 'b'), nn.LayerNorm: ('scale', 'offset')}


def load(request, arrays):
  """Loads a module and its inputs."""
  torch.set_num_threads(request['cores'])
  precision = request['precision']
  torch.set_float32_matmul_precision(
    'high' if precision == 'tf32' else 'highest'
  )
  on_gpu = request['device'] == 'gpu'
  device = 'cuda' if on_gpu else 'cpu'
  inputs, state = [
    torch.from_numpy(arrays[name]).to(device) for name in ('inputs', 'state')
  ]
  if request['name'] == 'torch_lstm':
    module = _Lstm(inputs.shape[-1], state[0].numel())
  else:
    module = RelationalMemory(request['arguments'], arrays)
  module.to(device)
  unroll = module.unroll
  match request['variant']:
    case 'step':
      module.step = torch.compile(module.step)
    case 'unroll':
      unroll = torch.compile(unroll)
    case 'unroll, CUDA graphs':
      unroll = torch.compile(unroll, mode='reduce-overhead')

  def forward():
    with torch.autocast(
      device, dtype=torch.bfloat16, enabled=precision == 'bfloat16'
    ):
      return unroll(inputs, state)

  def evaluate():
    with torch.no_grad():
      return forward()

  def train():
    module.zero_grad(set_to_none=True)
    loss = forward().float().square().mean()
    loss.backward()
    return loss

  def build(step):
    function = {'train': train, 'forward': evaluate}[step]

    def run():
      function()
      if on_gpu:
        torch.cuda.synchronize()

    return run, {}

  def results():
    # Copied at once: the next call may overwrite the output of a CUDA graph.
    found = {'outputs': evaluate().float().cpu(), 'loss': train()}
    for name, parameter in module.haiku_parameters().items():
      found[f'gradients/{name}'] = parameter.grad.t()
    return {k: v.detach().float().cpu().numpy() for k, v in found.items()}

  def device_memory():
    if not on_gpu:
      return None
    return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()

  name = torch.cuda.get_device_name() if on_gpu else 'cpu'
  about = {'torch': torch.__version__, 'device': name}
  return serve.Implementation(about, build, results, device_memory)


class _Lstm(nn.LSTM):
  """PyTorch's fused LSTM, starting from zeros."""

  def unroll(self, inputs, _):
    return self(inputs)[0]


class RelationalMemory(nn.Module):
  """The core with one block; see rmc_jax/cores/relational_memory.py."""

  def __init__(self, arguments, arrays):
    super().__init__()
    head_size = arguments['head_size']
    key_size = arguments['key_size'] or head_size
    self.mem_slots = arguments['mem_slots']
    self.num_heads = arguments['num_heads']
    self.mlp_layers = arguments['attention_mlp_layers']
    self.sizes = [key_size, key_size, head_size]
    self.query_scale = key_size**-0.5
    self.layers = nn.ModuleDict()
    for name, value in arrays.items():
      path, _, leaf = name.rpartition('/')
      path = path.replace('weights/relational_memory/', '')
      if leaf == 'w':
        self.layers[path] = nn.Linear(*value.shape)
      elif leaf == 'scale':
        self.layers[path] = nn.LayerNorm(value.shape)
    for name, parameter in self.haiku_parameters().items():
      parameter.data.copy_(torch.from_numpy(arrays[f'weights/{name}'].T))

  def haiku_parameters(self):
    """Returns the parameters by their Haiku names; matrices are transposed."""
    return {
      f'relational_memory/{path}/{leaf}': parameter
      for path, layer in self.layers.items()
      for leaf, parameter in zip(
        _LEAVES[type(layer)], layer.parameters(), strict=True
      )
    }

  def unroll(self, inputs, memory):
    """Maps [T, B, features] and [B, N, D] to outputs [T, B, N * D]."""
    outputs = []
    qkv, gates = self.project(inputs)
    for projected in zip(qkv.unbind(), gates.unbind(), strict=True):
      memory = self.step(projected, memory)
      outputs.append(memory.flatten(1))
    return torch.stack(outputs)

  def project(self, inputs):
    """Computes what does not depend on the memory, for all steps at once."""
    rows = self.layers['input'](inputs)[:, :, None]  # [T, B, 1, D]
    return self.qkv(rows), self.layers['input_gates'](rows)

  def qkv(self, rows):
    """Maps [..., D] to query, key and value of every head, [..., F]."""
    qkv = self.layers['attention_0/qkv'](rows)
    return self.layers['attention_0/qkv_norm'](qkv)

  def step(self, projected, memory):
    """Returns the next memory, [B, N, D]."""
    qkv, input_gates = projected  # [B, 1, F] and [B, 1, 2 * G]
    qkv = torch.cat([self.qkv(memory), qkv], 1)  # [B, N+1, F]
    heads = qkv.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
    query, key, value = heads.split(self.sizes, -1)  # [B, H, N+1, K or V]
    query = query[:, :, : self.mem_slots] * self.query_scale
    weights = torch.softmax(query @ key.transpose(-1, -2), -1)
    attended = (weights @ value).transpose(1, 2).flatten(2)  # [B, N, D]
    rows = self.layers['attention_0/attention_norm'](memory + attended)
    hidden = rows
    for i in range(self.mlp_layers):
      hidden = F.relu(hidden) if i else hidden
      hidden = self.layers[f'mlp/linear_{i}'](hidden)
    candidate = self.layers['attention_0/mlp_norm'](rows + hidden)

    gates = self.layers['memory_gates'](torch.tanh(memory)) + input_gates
    input_gate, forget_gate = gates.chunk(2, -1)
    return (
      torch.sigmoid(input_gate) * torch.tanh(candidate)
      + torch.sigmoid(forget_gate + 1.0) * memory
    )


if __name__ == '__main__':
  serve.serve(load)
