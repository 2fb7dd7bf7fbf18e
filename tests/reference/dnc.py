"""One step of a Differentiable Neural Computer in NumPy, slot by slot.

Written from the equations of Graves et al. 2016 and the description of their
released code, with explicit loops over examples, heads and slots, in the
precision of its arguments (float64 in tests). Slots are allocated by
sorting them. Nothing here is shared with the package.
"""

import numpy as np

EPSILON = 1e-6


def step(params, inputs, state, *, num_layers, clip_value, name='dnc'):
  """Runs one step on inputs [B, features] and a dict of [B, ...] arrays.

  `state['controller']` is a list of (hidden, cell) pairs, one for each layer of
  an LSTM, or empty for a feed-forward controller. Returns outputs [B, Y] and
  the next state.
  """
  outputs, states = [], []
  for b, x in enumerate(inputs):
    one = {k: v[b] for k, v in state.items() if k != 'controller'}
    one['controller'] = [(h[b], c[b]) for h, c in state['controller']]
    output, after = _step(params, name, x, one, num_layers, clip_value)
    outputs.append(output)
    states.append(after)
  after = {
    key: np.stack([s[key] for s in states])
    for key in states[0]
    if key != 'controller'
  }
  after['controller'] = [
    tuple(np.stack(part) for part in zip(*layer, strict=True))
    for layer in zip(*(s['controller'] for s in states), strict=True)
  ]
  return np.stack(outputs), after


def _step(params, name, x, old, num_layers, clip_value):
  """Runs one step of one example."""

  def clip(value):
    return np.clip(value, -clip_value, clip_value) if clip_value else value

  num_reads, word_size = old['reads'].shape
  num_writes, num_slots = old['write_weights'].shape
  seen = np.concatenate([x, old['reads'].ravel()])
  if old['controller']:
    y, controller = _lstm(params, f'{name}/controller', seen, old)
  else:
    y = _feed_forward(params, f'{name}/controller', seen, len(x), num_layers)
    controller = []
  y = clip(y)
  controller = [(clip(h), clip(c)) for h, c in controller]

  columns = _linear(params, f'{name}/interface', y)
  shapes = [
    ('write_words', (num_writes, word_size)),
    ('erase', (num_writes, word_size)),
    ('free', (num_reads,)),
    ('allocate', (num_writes,)),
    ('write', (num_writes,)),
    ('modes', (num_reads, 1 + 2 * num_writes)),
    ('write_keys', (num_writes, word_size)),
    ('write_strengths', (num_writes,)),
    ('read_keys', (num_reads, word_size)),
    ('read_strengths', (num_reads,)),
  ]
  xi, start = {}, 0
  for key, shape in shapes:
    size = int(np.prod(shape))
    xi[key] = columns[start : start + size].reshape(shape)
    start += size
  assert start == len(columns)
  for key in ('erase', 'free', 'allocate', 'write'):
    xi[key] = sigmoid(xi[key])

  usage = np.empty(num_slots)
  for n in range(num_slots):
    unwritten = kept = 1.0
    for j in range(num_writes):
      unwritten *= 1 - old['write_weights'][j, n]
    for r in range(num_reads):
      kept *= 1 - xi['free'][r] * old['read_weights'][r, n]
    taken = old['usage'][n] + (1 - old['usage'][n]) * (1 - unwritten)
    usage[n] = taken * kept

  write_weights, expected_usage = [], usage
  for j in range(num_writes):
    free = allocation(expected_usage)
    content = content_weights(
      xi['write_keys'][j], xi['write_strengths'][j], old['memory']
    )
    gate, both = xi['allocate'][j], xi['allocate'][j] * xi['write'][j]
    write_weights.append(xi['write'][j] * (gate * free + (1 - gate) * content))
    expected_usage = expected_usage + (1 - expected_usage) * both * free
  write_weights = np.stack(write_weights)

  memory = old['memory'].copy()
  for n in range(num_slots):
    for j in range(num_writes):
      memory[n] *= 1 - write_weights[j, n] * xi['erase'][j]
  for n in range(num_slots):
    for j in range(num_writes):
      memory[n] += write_weights[j, n] * xi['write_words'][j]

  link, precedence = np.zeros_like(old['link']), []
  for j in range(num_writes):
    w, p = write_weights[j], old['precedence'][j]
    for n in range(num_slots):
      for m in range(num_slots):
        if n != m:
          link[j, n, m] = (1 - w[n] - w[m]) * old['link'][j, n, m] + w[n] * p[m]
    precedence.append((1 - w.sum()) * p + w)

  read_weights = []
  for r in range(num_reads):
    modes = softmax(xi['modes'][r])
    weights = modes[-1] * content_weights(
      xi['read_keys'][r], xi['read_strengths'][r], memory
    )
    for j in range(num_writes):
      weights += modes[j] * (old['read_weights'][r] @ link[j])
      weights += modes[num_writes + j] * (link[j] @ old['read_weights'][r])
    read_weights.append(weights)
  reads = np.stack(
    [
      sum(w * word for w, word in zip(weights, memory, strict=True))
      for weights in read_weights
    ]
  )

  output = _linear(params, f'{name}/output', np.concatenate([y, reads.ravel()]))
  return clip(output), {
    'memory': memory,
    'read_weights': np.stack(read_weights),
    'write_weights': write_weights,
    'link': link,
    'precedence': np.stack(precedence),
    'usage': usage,
    'reads': reads,
    'controller': controller,
  }


def allocation(usage):
  """Returns allocation weights by sorting the slots by usage."""
  usage = EPSILON + (1 - EPSILON) * usage
  weights, remaining = np.zeros_like(usage), 1.0
  for n in np.argsort(usage, kind='stable'):
    weights[n] = (1 - usage[n]) * remaining
    remaining *= usage[n]
  return weights


def content_weights(key, strength, memory):
  """Returns the softmax over slots of softplus(strength) times the cosine."""
  cosines = []
  for word in memory:
    lengths = np.sqrt(key @ key + EPSILON) * np.sqrt(word @ word + EPSILON)
    cosines.append(key @ word / (lengths + EPSILON))
  return softmax(np.log1p(np.exp(strength)) * np.array(cosines))


def softmax(x):
  weights = np.exp(x - x.max())
  return weights / weights.sum()


def sigmoid(x):
  return 1.0 / (1.0 + np.exp(-x))


def _lstm(params, path, seen, old):
  """Runs the controller, whose layers all read x and the last reads."""
  outputs, states = [], []
  for i, (hidden, cell) in enumerate(old['controller']):
    rows = np.concatenate([seen, *outputs[-1:], hidden])
    w = np.concatenate(
      [params[f'{path}/input_{i}']['w'], params[f'{path}/recurrent_{i}']['w']]
    )
    gates = rows @ w + params[f'{path}/input_{i}']['b']
    i_gate, candidate, f_gate, o_gate = np.split(gates, 4)
    cell = sigmoid(f_gate + 1) * cell + sigmoid(i_gate) * np.tanh(candidate)
    hidden = sigmoid(o_gate) * np.tanh(cell)
    outputs.append(hidden)
    states.append((hidden, cell))
  return np.concatenate(outputs), states


def _feed_forward(params, path, seen, input_size, num_layers):
  first = params[f'{path}/input']
  y = seen[:input_size] @ first['w'] + first['b']
  y = np.maximum(y + seen[input_size:] @ params[f'{path}/feedback']['w'], 0)
  for i in range(1, num_layers):
    y = np.maximum(_linear(params, f'{path}/linear_{i}', y), 0)
  return y


def _linear(params, path, row):
  return row @ params[path]['w'] + params[path]['b']
