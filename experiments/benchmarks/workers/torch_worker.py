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


class Unroll(serve.Implementation):
  """A module and its inputs."""

  def __init__(self, request, arrays):
    torch.set_num_threads(request['cores'])
    precision = request['precision']
    torch.set_float32_matmul_precision(
      'high' if precision == 'tf32' else 'highest'
    )
    self._device = 'cuda' if request['device'] == 'gpu' else 'cpu'
    self._autocast = precision == 'bfloat16'
    self._inputs = torch.from_numpy(arrays['inputs']).to(self._device)
    self._state = torch.from_numpy(arrays['state']).to(self._device)
    if request['name'] == 'torch_lstm':
      self._module = _Lstm(self._inputs.shape[-1], self._state[0].numel())
    else:
      self._module = RelationalMemory(
        **request['arguments'], features=self._inputs.shape[-1]
      )
      self._module.load(arrays)
    self._module.to(self._device)
    self._forward = self._module.unroll
    match request['variant']:
      case 'step':
        self._module.step = torch.compile(self._module.step)
      case 'unroll':
        self._forward = torch.compile(self._module.unroll)
      case 'unroll, CUDA graphs':
        self._forward = torch.compile(
          self._module.unroll, mode='reduce-overhead'
        )
    on_gpu = self._device == 'cuda'
    device = torch.cuda.get_device_name() if on_gpu else 'cpu'
    self.about = {'torch': torch.__version__, 'device': device}

  def build(self, step):
    """See base class."""
    function = {'train': self._train, 'forward': self._outputs}[step]

    def run():
      function()
      if self._device == 'cuda':
        torch.cuda.synchronize()

    return run, {}

  def results(self):
    """See base class."""
    # Copied at once: the next call may overwrite the output of a CUDA graph.
    results = {'outputs': self._outputs().float().cpu(), 'loss': self._train()}
    for name, weight in self._module.named_parameters():
      # torch.nn.Linear stores the transposed matrix.
      results['gradients/' + self._module.haiku_name(name)] = weight.grad.t()
    return {k: v.detach().float().cpu().numpy() for k, v in results.items()}

  def device_memory(self):
    """See base class."""
    if self._device == 'cpu':
      return None
    return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()

  def _outputs(self):
    with torch.no_grad(), self._precision():
      return self._forward(self._inputs, self._state)

  def _train(self):
    self._module.zero_grad(set_to_none=True)
    with self._precision():
      loss = self._forward(self._inputs, self._state).float().square().mean()
    loss.backward()
    return loss

  def _precision(self):
    return torch.autocast(
      self._device, dtype=torch.bfloat16, enabled=self._autocast
    )


class RelationalMemory(nn.Module):
  """The core with one block; see rmc_jax/cores/relational_memory.py."""

  def __init__(
    self,
    mem_slots,
    head_size,
    num_heads,
    key_size,
    gate_style,
    attention_mlp_layers,
    features,
  ):
    super().__init__()
    width = head_size * num_heads  # D
    key_size = key_size or head_size
    gates = 2 * (width if gate_style == 'unit' else 1)
    self.mem_slots, self.num_heads = mem_slots, num_heads
    self.sizes = [key_size, key_size, head_size]
    self.query_scale = key_size**-0.5
    self.input = nn.Linear(features, width)
    self.qkv = nn.Linear(width, num_heads * sum(self.sizes))
    self.qkv_norm = nn.LayerNorm(self.qkv.out_features)
    self.attention_norm = nn.LayerNorm(width)
    self.mlp = nn.ModuleList(
      nn.Linear(width, width) for _ in range(attention_mlp_layers)
    )
    self.mlp_norm = nn.LayerNorm(width)
    self.input_gates = nn.Linear(width, gates)
    self.memory_gates = nn.Linear(width, gates)

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
    rows = self.input(inputs)[:, :, None]  # [T, B, 1, D]
    return self.qkv_norm(self.qkv(rows)), self.input_gates(rows)

  def step(self, projected, memory):
    """Returns the next memory, [B, N, D]."""
    qkv, input_gates = projected  # [B, 1, F] and [B, 1, 2 * G]
    qkv = torch.cat([self.qkv_norm(self.qkv(memory)), qkv], 1)  # [B, N+1, F]
    heads = qkv.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
    query, key, value = heads.split(self.sizes, -1)  # [B, H, N+1, K or V]
    query = query[:, :, : self.mem_slots] * self.query_scale
    weights = torch.softmax(query @ key.transpose(-1, -2), -1)
    attended = (weights @ value).transpose(1, 2).flatten(2)  # [B, N, D]
    rows = self.attention_norm(memory + attended)
    hidden = rows
    for i, layer in enumerate(self.mlp):
      hidden = layer(F.relu(hidden) if i else hidden)
    candidate = self.mlp_norm(rows + hidden)

    gates = self.memory_gates(torch.tanh(memory)) + input_gates
    input_gate, forget_gate = gates.chunk(2, -1)
    return (
      torch.sigmoid(input_gate) * torch.tanh(candidate)
      + torch.sigmoid(forget_gate + 1.0) * memory
    )

  def load(self, arrays):
    """Sets every parameter from `weights/<Haiku name>`; refuses others."""
    unused = {name for name in arrays if name.startswith('weights/')}
    for name, parameter in self.named_parameters():
      haiku_name = 'weights/' + self.haiku_name(name)
      parameter.data.copy_(torch.from_numpy(arrays[haiku_name].T))
      unused.remove(haiku_name)
    if unused:
      raise ValueError(
        f'arrays has {sorted(unused)}, for which the port has no parameters.'
      )

  def haiku_name(self, name):
    """Maps 'qkv.weight' to 'relational_memory/attention_0/qkv/w'."""
    layer, leaf = name.rsplit('.', 1)
    if layer.startswith('mlp.'):
      layer = layer.replace('mlp.', 'mlp/linear_')
    elif layer not in ('input', 'input_gates', 'memory_gates'):
      layer = f'attention_0/{layer}'
    leaves = ('scale', 'offset') if layer.endswith('norm') else ('w', 'b')
    return f'relational_memory/{layer}/{leaves[leaf == "bias"]}'


class _Lstm(nn.LSTM):
  """PyTorch's fused LSTM, starting from zeros."""

  def unroll(self, inputs, state):
    """Maps [T, B, features] to outputs [T, B, state size]."""
    del state
    return self(inputs)[0]


if __name__ == '__main__':
  serve.serve(Unroll)
