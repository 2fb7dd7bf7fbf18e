"""Measures what a device can do.

The request's `peak` selects one of `_PEAKS`.
"""

import jax
import jax.numpy as jnp

from experiments.benchmarks import counts
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.workers import jax_worker
from experiments.benchmarks.workers import serve

# Rows of the large product: enough to keep the device busy.
_CPU_ROWS, _GPU_ROWS = 2048, 8192
# Bytes that a step of `copy` moves at least, to exceed the cost of its call.
_MIN_MOVED = 1 << 29


def load(request, arrays=None):
  """Loads a peak, whose facts are the operations or bytes of a step."""
  del arrays
  jax_worker.set_precision(request['precision'])
  bfloat16 = request['precision'] == 'bfloat16'
  dtype = jnp.bfloat16 if bfloat16 else jnp.float32
  return jax_worker.program(*_PEAKS[request['peak']](request, dtype))


def _product(request, dtype):
  """Multiplies two large square matrices."""
  del request
  rows = _CPU_ROWS if jax.default_backend() == 'cpu' else _GPU_ROWS
  x = jax.random.normal(jax.random.key(0), (rows, rows)).astype(dtype)
  product = jax.jit(_dot)
  return lambda: product(x, x).block_until_ready(), {'operations': 2 * rows**3}


def _copy(request, dtype):
  """Reads and writes an array in place, many times if it is small."""
  del dtype
  passes = -(-_MIN_MOVED // (2 * request['bytes']))
  x = jnp.zeros(request['bytes'] // 4)
  # In place, or page faults of a new array would be measured.
  run = jax.jit(
    lambda x: jax.lax.fori_loop(0, passes, lambda _, x: x + 1.0, x),
    donate_argnums=0,
  )

  def step():
    nonlocal x
    x = run(x).block_until_ready()

  return step, {'bytes': 2 * passes * x.nbytes}


def _linears(request, dtype):
  """Computes only the Linears of a training step, in their loops."""
  size = Size(**request['size'])
  keys = iter(jax.random.split(jax.random.key(0), 99))

  def normal(*shape):
    return jax.random.normal(next(keys), shape).astype(dtype)

  # Scaled so that results neither grow nor vanish.
  before, loop = [
    [normal(p.size, p.width) * p.size**-0.5 for p in products]
    for products in (counts.projection(size), counts.recurrence(size))
  ]
  inputs = normal(size.steps * size.batch, size.features)
  memory = normal(size.batch * size.mem_slots, size.slot_width)
  run = jax.jit(lambda *arguments: linears(size.steps, *arguments))
  # Attention counts once in the forward pass and twice in the backward pass.
  attention = size.steps * size.batch * counts.attention_operations(size)
  operations = sum(phase.operations for phase in counts.phases(size))
  return (
    lambda: jax.block_until_ready(run(inputs, memory, before, loop)),
    {'operations': operations - 3 * attention},
  )


_PEAKS = {'product': _product, 'copy': _copy, 'linears': _linears}


def linears(steps, inputs, memory, before, loop):
  """Computes the products of `counts.phases` without attention.

  Only the shapes are those of a memory core: the factors are results of other
  products of the right width, and the gradients are stand-ins.

  Args:
    steps: T.
    inputs: [T * B, X].
    memory: [B * N, D].
    before: the weights of `counts.projection`, without biases.
    loop: those of `counts.recurrence`.

  Returns:
    The gradients of `before`, of `loop` and of the memory.
  """
  w_input, *w_rows = before
  w_qkv, w_gates, *w_mlp = loop
  rows = _dot(inputs, w_input)
  projected = [_dot(rows, w) for w in w_rows]

  def forward(memory, _):
    hidden = [memory]
    for w in w_mlp:
      hidden.append(_dot(hidden[-1], w))
    return hidden[-1], (_dot(memory, w_qkv), _dot(memory, w_gates), hidden)

  memory, saved = jax.lax.scan(forward, memory, length=steps)
  *d_rows, hidden = saved

  def backward(d_memory, d_rows):
    d_qkv, d_gates = d_rows
    d_hidden = [d_memory]
    for w in reversed(w_mlp):
      d_hidden.append(_dot(d_hidden[-1], w.T))
    d_memory = d_hidden[-1] + _dot(d_qkv, w_qkv.T) + _dot(d_gates, w_gates.T)
    return d_memory * 0.5, d_hidden[-2::-1]

  d_memory, d_hidden = jax.lax.scan(backward, memory, d_rows, reverse=True)
  factors = [hidden[0], hidden[0], *hidden[:-1]]
  d_loop = list(map(_weight_gradient, factors, [*d_rows, *d_hidden]))
  d_input = sum(_dot(g, w.T) for g, w in zip(projected, w_rows, strict=True))
  d_before = [
    _weight_gradient(inputs, d_input),
    *[_weight_gradient(rows, gradient) for gradient in projected],
  ]
  return d_before, d_loop, d_memory


def _weight_gradient(x, g):
  """Contracts all rows of all steps."""
  return _dot(x.reshape(-1, x.shape[-1]).T, g.reshape(-1, g.shape[-1]))


def _dot(x, w):
  """Accumulates in float32, as the core does; returns the factors' dtype."""
  sums = jnp.dot(x, w, preferred_element_type=jnp.float32)
  return sums.astype(x.dtype)


if __name__ == '__main__':
  serve.serve(load)
