"""Measures what a device can do.

The request's `peak` selects one:

product   one product of two large square matrices
copy      a pass that reads and writes an array of `bytes` in place, many
          times if it is small
linears   only the Linears of a training step, forward and backward, in
          their loops; see `linears`
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


class Peak(serve.Implementation):
  """One of the three; facts are the operations or bytes of a step."""

  def __init__(self, request, arrays):
    del arrays
    jax_worker.set_precision(request['precision'])
    bfloat16 = request['precision'] == 'bfloat16'
    dtype = jnp.bfloat16 if bfloat16 else jnp.float32
    self._make = {
      'product': lambda: _product(dtype),
      'copy': lambda: _copy(request['bytes']),
      'linears': lambda: _linears(Size(**request['size']), dtype),
    }[request['peak']]
    self.about = jax_worker.about()

  def build(self, step):
    """See base class."""
    del step
    return self._make()


def _product(dtype):
  rows = _CPU_ROWS if jax.default_backend() == 'cpu' else _GPU_ROWS
  x = jax.random.normal(jax.random.key(0), (rows, rows)).astype(dtype)
  product = jax.jit(_dot)
  return lambda: product(x, x).block_until_ready(), {'operations': 2 * rows**3}


def _copy(size):
  passes = -(-_MIN_MOVED // (2 * size))
  x = jnp.zeros(size // 4)
  # In place, or page faults of a new array would be measured.
  run = jax.jit(
    lambda x: jax.lax.fori_loop(0, passes, lambda _, x: x + 1.0, x),
    donate_argnums=0,
  )

  def step():
    nonlocal x
    x = run(x).block_until_ready()

  return step, {'bytes': 2 * passes * x.nbytes}


def _linears(size, dtype):
  keys = iter(jax.random.split(jax.random.key(0), 99))

  def normal(*shape):
    return jax.random.normal(next(keys), shape).astype(dtype)

  # Scaled so that results neither grow nor vanish.
  before, loop = [
    [normal(p.size, p.width) * p.size**-0.5 for p in products]
    for products in (counts.projection(size), counts.recurrence(size))
  ]
  arguments = (
    normal(size.steps * size.batch, size.features),
    normal(size.batch * size.mem_slots, size.slot_width),
    before,
    loop,
  )
  run = jax.jit(lambda *arguments: linears(size, *arguments))
  operations = sum(phase.operations for phase in counts.phases(size))
  # Attention counts once in the forward pass and twice in the backward pass.
  attention = size.steps * size.batch * counts.attention_operations(size)
  facts = {'operations': operations - 3 * attention}
  return lambda: jax.block_until_ready(run(*arguments)), facts


def linears(size, inputs, memory, before, loop):
  """Computes the products of `counts.phases` without attention.

  Only the shapes are those of a memory core: the factors are results of other
  products of the right width, and the gradients are stand-ins.

  Args:
    size: the core.
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
    qkv, gates = _dot(memory, w_qkv), _dot(memory, w_gates)
    hidden = [memory]
    for w in w_mlp:
      hidden.append(_dot(hidden[-1], w))
    return hidden[-1], (qkv, gates, hidden)

  memory, saved = jax.lax.scan(forward, memory, length=size.steps)

  def backward(d_memory, saved):
    d_qkv, d_gates, _ = saved
    d_hidden = [d_memory]
    for w in reversed(w_mlp):
      d_hidden.append(_dot(d_hidden[-1], w.T))
    d_memory = d_hidden[-1] + _dot(d_qkv, w_qkv.T) + _dot(d_gates, w_gates.T)
    return d_memory * 0.5, d_hidden[:-1]

  d_memory, d_hidden = jax.lax.scan(backward, memory, saved, reverse=True)

  d_qkv, d_gates, hidden = saved
  d_loop = [
    _weight_gradient(x, g)
    for x, g in zip(
      [hidden[0], hidden[0], *hidden[:-1]],
      [d_qkv, d_gates, *reversed(d_hidden)],
      strict=True,
    )
  ]
  d_rows = sum(_dot(g, w.T) for g, w in zip(projected, w_rows, strict=True))
  d_before = [
    _weight_gradient(inputs, d_rows),
    *[_weight_gradient(rows, g) for g in projected],
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
  serve.serve(Peak)
