"""One step of both relational memory cores in NumPy, row by row.

Written from the paper's equations and the description of the released module
with explicit loops over examples, rows and heads, in the precision of what it
is given (tests give float64). Nothing here is shared with the package.
"""

import numpy as np


def relational_memory_step(
  params,
  inputs,
  memory,
  *,
  num_heads,
  key_size,
  num_blocks,
  gate_style,
  forget_bias=1.0,
  input_bias=0.0,
  query_scale='key',
  name='relational_memory',
):
  """Runs Sonnet's form on inputs [B][I, features] and memory [B, N, D].

  Returns the next memory, attention [B, L, H, N, N + I], and the input and
  forget gates [B, N, G] (None for an ungated core).
  """
  p = _Parameters(params, name)
  num_slots, slot_width = memory.shape[1:]
  value_size = slot_width // num_heads
  head_width = 2 * key_size + value_size
  scale = {'key': key_size, 'qkv': head_width}[query_scale] ** -0.5
  next_memories, attention, input_gates, forget_gates = [], [], [], []
  for x, m in zip(inputs, memory, strict=True):
    input_rows = [p.linear('input', row) for row in x]
    rows = list(m) + input_rows
    attention.append([])
    for block in range(num_blocks):
      at = f'attention_{block}/'
      qkv = [
        p.layer_norm(at + 'qkv_norm', p.linear(at + 'qkv', r)) for r in rows
      ]
      heads, head_weights = [], []
      for h in range(num_heads):
        cut = [r[h * head_width : (h + 1) * head_width] for r in qkv]
        query = [c[:key_size] * scale for c in cut]
        key = [c[key_size : 2 * key_size] for c in cut]
        value = [c[2 * key_size :] for c in cut]
        attended, weights = attend(query, key, value)
        heads.append(attended)
        head_weights.append(weights[:num_slots])
      attention[-1].append(head_weights)
      updated = []
      for i, row in enumerate(rows):
        attended = np.concatenate([head[i] for head in heads])
        row = p.layer_norm(at + 'attention_norm', row + attended)
        updated.append(p.layer_norm(at + 'mlp_norm', row + p.mlp(row)))
      rows = updated
    candidate = np.stack(rows[:num_slots])
    if gate_style is None:
      next_memories.append(candidate)
      continue
    from_input = p.linear('input_gates', np.concatenate(input_rows))
    next_rows, input_rows_gates, forget_rows_gates = [], [], []
    for old, new in zip(m, candidate, strict=True):
      gates = p.linear('memory_gates', np.tanh(old)) + from_input
      half = len(gates) // 2
      input_gate = sigmoid(gates[:half] + input_bias)
      forget_gate = sigmoid(gates[half:] + forget_bias)
      next_rows.append(input_gate * np.tanh(new) + forget_gate * old)
      input_rows_gates.append(input_gate)
      forget_rows_gates.append(forget_gate)
    next_memories.append(np.stack(next_rows))
    input_gates.append(input_rows_gates)
    forget_gates.append(forget_rows_gates)
  gates = None
  if gate_style is not None:
    gates = {'input': np.array(input_gates), 'forget': np.array(forget_gates)}
  return np.stack(next_memories), np.array(attention), gates


def paper_relational_memory_step(
  params,
  inputs,
  memory,
  hidden,
  *,
  num_heads,
  key_size,
  forget_bias=1.0,
  name='paper_relational_memory',
):
  """Runs equations (1) to (9) on [B][I, features], memory, hidden [B, N, D].

  Returns the next memory and hidden, attention [B, 1, H, N, N + I], and the
  three gates [B, N, G].
  """
  p = _Parameters(params, name)
  value_size = memory.shape[2] // num_heads
  next_memories, next_hiddens, attention = [], [], []
  all_gates = {'forget': [], 'input': [], 'output': []}
  for x, m, h in zip(inputs, memory, hidden, strict=True):
    embedded = [p.linear('input', row) for row in x]
    rows = list(m) + embedded
    head_outputs, head_weights = [], []
    for head in range(num_heads):
      query = [p.linear('queries', r) for r in m]
      query = [q[head * key_size :][:key_size] * key_size**-0.5 for q in query]
      width = key_size + value_size
      kv = [p.linear('keys_values', r)[head * width :][:width] for r in rows]
      attended, weights = attend(
        query, [r[:key_size] for r in kv], [r[key_size:] for r in kv]
      )
      head_outputs.append(attended)
      head_weights.append(weights)
    attention.append([head_weights])
    for gates in all_gates.values():
      gates.append([])
    from_input = p.linear('input_gates', np.concatenate(embedded))
    new_m, new_h = [], []
    for i in range(len(m)):
      attended = np.concatenate([head[i] for head in head_outputs])
      row = p.layer_norm('attention_norm', m[i] + attended)
      modification = p.layer_norm('mlp_norm', row + p.mlp(row))
      gates = from_input + p.linear('hidden_gates', h[i])
      f, g, o = np.split(gates, 3)
      f, g, o = sigmoid(f + forget_bias), sigmoid(g), sigmoid(o)
      new_m.append(f * m[i] + g * modification)
      new_h.append(o * np.tanh(new_m[-1]))
      for name, gate in zip(all_gates, (f, g, o), strict=True):
        all_gates[name][-1].append(gate)
    next_memories.append(np.stack(new_m))
    next_hiddens.append(np.stack(new_h))
  return (
    np.stack(next_memories),
    np.stack(next_hiddens),
    np.array(attention),
    {name: np.array(gate) for name, gate in all_gates.items()},
  )


def attend(query, key, value):
  """Returns each query's softmax-weighted average of values, and weights."""
  attended, all_weights = [], []
  for q in query:
    logits = np.array([q @ k for k in key])
    weights = np.exp(logits - logits.max())
    weights /= weights.sum()
    attended.append(sum(w * v for w, v in zip(weights, value, strict=True)))
    all_weights.append(weights)
  return attended, all_weights


def sigmoid(x):
  return 1.0 / (1.0 + np.exp(-x))


class _Parameters:
  """Applies the Haiku parameters of a module to one row."""

  def __init__(self, params, name):
    self._params, self._name = params, name

  def linear(self, path, row):
    layer = self._params[f'{self._name}/{path}']
    return row @ layer['w'] + layer.get('b', 0.0)

  def layer_norm(self, path, row):
    norm = self._params[f'{self._name}/{path}']
    centred = row - row.mean()
    deviation = np.sqrt((centred**2).mean() + 1e-5)
    return centred / deviation * norm['scale'] + norm['offset']

  def mlp(self, row):
    layers = sorted(k for k in self._params if f'{self._name}/mlp/' in k)
    for i in range(len(layers)):
      row = self.linear(f'mlp/linear_{i}', np.maximum(row, 0) if i else row)
    return row
