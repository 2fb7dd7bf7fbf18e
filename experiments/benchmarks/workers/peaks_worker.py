"""What a device can do: a large matrix product, a copy, a step's products.

Three contestants of experiments/benchmarks/roofline.py, a `peak` each:

  product   one product of two large square matrices
  copy      a pass over an array that reads and writes every element in place,
            `bytes` large, many times over if it is small
  linears   the Linears of a training step and nothing else of it, forward and
            backward, in the loops that they are in; see `linears`
"""

import jax
import jax.numpy as jnp

from experiments.benchmarks import counts
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.workers import jax_worker
from experiments.benchmarks.workers import serve

# Rows of the large product: enough to fill the device, and soon done.
_CPU_ROWS, _GPU_ROWS = 2048, 8192
# A step of `copy` moves at least so many bytes, to take more than its dispatch.
_LEAST_MOVED = 1 << 29


class Peak(serve.Contestant):
  """One of the three; facts are the operations or bytes of a step."""

  def __init__(self, request, arrays):
    del arrays
    precision = request['precision']
    if jax.default_backend() != 'cpu':
      jax.config.update(
        'jax_default_matmul_precision', jax_worker.MATMUL_PRECISION[precision]
      )
    dtype = jnp.bfloat16 if precision == 'bfloat16' else jnp.float32
    make = {
      'product': lambda: _product(dtype),
      'copy': lambda: _copy(request['bytes']),
      'linears': lambda: _linears(Size(**request['size']), dtype),
    }[request['peak']]
    self._step, self._facts = make()
    self.about = {
      'jax': jax.__version__,
      'device': jax.devices()[0].device_kind,
    }

  def build(self, what):
    """See base class."""
    del what
    return self._step, self._facts


def _product(dtype):
  on_cpu = jax.default_backend() == 'cpu'
  rows = _CPU_ROWS if on_cpu else _GPU_ROWS
  x = jax.random.normal(jax.random.key(0), (rows, rows)).astype(dtype)
  product = jax.jit(_dot)
  return lambda: product(x, x).block_until_ready(), {'operations': 2 * rows**3}


def _copy(size):
  passes = -(-_LEAST_MOVED // (2 * size))
  x = [jnp.zeros(size // 4)]
  # In place: into new pages each time, their making would be measured.
  run = jax.jit(
    lambda x: jax.lax.fori_loop(0, passes, lambda _, x: x + 1.0, x),
    donate_argnums=0,
  )

  def step():
    x[0] = run(x[0]).block_until_ready()

  return step, {'bytes': 2 * passes * x[0].nbytes}


def _linears(size, dtype):
  keys = iter(jax.random.split(jax.random.key(0), 99))

  def normal(*shape):
    return jax.random.normal(next(keys), shape).astype(dtype)

  products = counts.projection(size), counts.recurrence(size)
  # Of a scale at which results neither grow nor vanish.
  before, loop = [
    [normal(p.size, p.width) * p.size**-0.5 for p in each] for each in products
  ]
  arguments = (
    normal(size.steps * size.batch, size.features),
    normal(size.batch * size.mem_slots, size.slot_width),
    before,
    loop,
  )
  run = jax.jit(lambda *arguments: linears(size, *arguments))
  operations = sum(phase.operations for phase in counts.training_step(size))
  # Of attention, the forward pass once and the backward pass twice.
  attention = size.steps * size.batch * counts.attention_operations(size)
  facts = {'operations': operations - 3 * attention}
  return lambda: jax.block_until_ready(run(*arguments)), facts


def linears(size, inputs, memory, before, loop):
  """The products of `counts.training_step`, attention left out.

  Nothing but the shapes is a memory core's: what goes into a product is the
  result of another of the right width, and what goes back are stand-ins.

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
  of_rows = [_dot(rows, w) for w in w_rows]

  def forward(memory, _):
    qkv, gates = _dot(memory, w_qkv), _dot(memory, w_gates)
    hidden = [memory]
    for w in w_mlp:
      hidden.append(_dot(hidden[-1], w))
    return hidden[-1], (qkv, gates, hidden)

  memory, kept = jax.lax.scan(forward, memory, length=size.steps)

  def backward(d_memory, kept):
    d_qkv, d_gates, _ = kept
    d_hidden = [d_memory]
    for w in reversed(w_mlp):
      d_hidden.append(_dot(d_hidden[-1], w.T))
    d_memory = d_hidden[-1] + _dot(d_qkv, w_qkv.T) + _dot(d_gates, w_gates.T)
    return d_memory * 0.5, d_hidden[:-1]

  d_memory, d_hidden = jax.lax.scan(backward, memory, kept, reverse=True)

  d_qkv, d_gates, hidden = kept
  d_loop = [
    _weight_gradient(x, g)
    for x, g in zip(
      [hidden[0], hidden[0], *hidden[:-1]],
      [d_qkv, d_gates, *reversed(d_hidden)],
      strict=True,
    )
  ]
  d_rows = sum(_dot(g, w.T) for g, w in zip(of_rows, w_rows, strict=True))
  d_before = [
    _weight_gradient(inputs, d_rows),
    *[_weight_gradient(rows, g) for g in of_rows],
  ]
  return d_before, d_loop, d_memory


def _weight_gradient(x, g):
  """Over all rows of all steps."""
  return _dot(x.reshape(-1, x.shape[-1]).T, g.reshape(-1, g.shape[-1]))


def _dot(x, w):
  """Sums in float32, as the core has them; results in the factors' dtype."""
  sums = jnp.dot(x, w, preferred_element_type=jnp.float32)
  return sums.astype(x.dtype)


if __name__ == '__main__':
  serve.serve(Peak)
