"""Operations and bytes that a step of the core must do, from its algebra.

They are those of one schedule, the cheapest known: what does not depend on the
memory is computed for all steps at once before the loop, and the gradients of
the weights are formed once after the backward loop, as products over all T * B
rows. For one block and one input row; letters as in `rmc_jax.types`.
"""

from collections.abc import Callable
import dataclasses
from typing import NamedTuple

from experiments.benchmarks.sizes import Size


class Product(NamedTuple):
  """A Linear as one example needs it in one step: [rows, size] to width."""

  rows: int
  size: int  # features in
  width: int  # features out

  @property
  def operations(self) -> int:
    return 2 * self.rows * self.size * self.width

  @property
  def weights(self) -> int:
    return (self.size + 1) * self.width  # with its bias


@dataclasses.dataclass(frozen=True)
class Phase:
  """What must be done before the next phase can begin.

  Attributes:
    name: of the phase.
    operations: multiplications and additions of its matrix products.
    bytes: of the arrays that it reads or writes, each counted once.
    weight_bytes: the weights that one pass reads, which is one step of a loop.
    passes: how often it reads them.
  """

  name: str
  operations: int
  bytes: int
  weight_bytes: int
  passes: int = 1

  @property
  def all_bytes(self) -> int:
    return self.bytes + self.passes * self.weight_bytes


def forward(size: Size, itemsize: int = 4) -> list[Phase]:
  """'project' and 'forward loop' without gradients. See `training_step`."""
  return _phases(size, itemsize, training=False)


def training_step(size: Size, itemsize: int = 4) -> list[Phase]:
  """The outputs, and the gradients of all parameters and of the first memory.

  Operations are those of matrix products. For one example and one step, with
  F = H * (2 * K + V), G' = 2 * D for 'unit' and 2 for 'memory' gates and J
  layers in the MLP:

    Linears before the loop   2 * (X * D + D * F + D * G')
    Linears in the loop       2 * N * (D * F + D * G' + J * D * D)
    attention                 2 * N * (N + 1) * H * (K + V)

  A Linear costs that three times: for its result, for the gradient of its input
  (but those of the sequence, which nobody asks for) and for that of its
  weights; attention too, having two inputs. Biases, layer norms, softmax, gates
  and ReLU are not counted: some tens of operations an element where products
  have hundreds or thousands.

  Bytes are those of each phase by itself: what one phase leaves to another, or
  to the caller, is written once and read once; what stays inside a phase costs
  nothing. Kept for the backward loop are the results of all Linears and the
  memories: the rest follows from them by elementwise functions, layer norms and
  the small products of attention. Weights are read at every pass of a loop; how
  fast that goes depends on whether they stay in a cache, so they are apart.

  Args:
    size: the core, T, B and X.
    itemsize: bytes of a number, in all arrays.

  Returns:
    'project', 'forward loop', 'backward loop' and 'weight gradients'.
  """
  return _phases(size, itemsize, training=True)


def projection(size: Size) -> list[Product]:
  """The Linears that see no memory: input, first q, k, v, and gates.

  All of q, k and v, though the query of the input row is never used: the layer
  norm spans them.
  """
  width = size.slot_width
  return [
    Product(1, size.features, width),
    Product(1, width, _qkv_width(size)),
    Product(1, width, _gate_width(size)),
  ]


def recurrence(size: Size) -> list[Product]:
  """The Linears of one step on the memory: q, k, v, gates, and the MLP."""
  slots, width = size.mem_slots, size.slot_width
  return [
    Product(slots, width, _qkv_width(size)),
    Product(slots, width, _gate_width(size)),
    *[Product(slots, width, width)] * size.mlp_layers,
  ]


def parameters(size: Size) -> int:
  """The number of scalars; q, k and v of inputs and memory share weights."""
  linears = [projection(size)[0], projection(size)[2], *recurrence(size)]
  norms = 2 * (_qkv_width(size) + 2 * size.slot_width)
  return _total(lambda product: product.weights, linears) + norms


def _phases(size, itemsize, training):
  before, loop = projection(size), recurrence(size)
  operations_before = _total(lambda product: product.operations, before)
  operations_loop = _total(lambda product: product.operations, loop)
  attention = attention_operations(size)
  # Numbers, of one example in one step.
  inputs = size.features
  projected = _total(lambda product: product.rows * product.width, before)
  outputs = size.state_size
  results = _total(lambda product: product.rows * product.width, loop)
  arguments = _total(lambda product: product.rows * product.size, loop)
  # Bytes, of all examples and steps, and of weights.
  examples = size.steps * size.batch
  each = itemsize * examples
  weights_before = itemsize * _total(lambda product: product.weights, before)
  weights_loop = itemsize * _total(lambda product: product.weights, loop)

  kept = outputs + results * training
  phases = [
    Phase(
      'project',
      examples * operations_before,
      each * (inputs + projected),
      weights_before,
    ),
    Phase(
      'forward loop',
      examples * (operations_loop + attention),
      each * (projected + kept),
      weights_loop,
      size.steps,
    ),
  ]
  if not training:
    return phases
  return phases + [
    Phase(
      'backward loop',
      examples * (operations_loop + 2 * attention),
      # In: projected, kept, d outputs. Out: d projected, d results.
      each * (projected + kept + outputs + projected + results),
      weights_loop,
      size.steps,
    ),
    Phase(
      'weight gradients',
      # Of the weights: all. Of inputs: those of the projection but one.
      examples
      * (operations_loop + 2 * operations_before - before[0].operations),
      # In: the factors of all these products. Out: the gradients.
      each * (arguments + results + inputs + 2 * projected)
      + itemsize * parameters(size),
      weights_before,
    ),
  ]


def attention_operations(size: Size) -> int:
  """Of q k^T and of the weighted sums of v, one example in one step."""
  rows = size.mem_slots * (size.mem_slots + 1)
  return 2 * rows * size.num_heads * (_key_size(size) + size.head_size)


def _key_size(size: Size) -> int:
  return size.head_size if size.key_size is None else size.key_size  # K


def _qkv_width(size: Size) -> int:
  return size.num_heads * (2 * _key_size(size) + size.head_size)  # F


def _gate_width(size: Size) -> int:
  return 2 * (size.slot_width if size.gate_style == 'unit' else 1)  # 2 * G


def _total(of: Callable[[Product], int], products: list[Product]) -> int:
  return sum(map(of, products))
