"""Counts the operations and bytes that a step of the core needs.

The counts are those of the cheapest known schedule: what does not depend on the
memory is computed for all steps at once before the loop, and the gradients of
the weights are formed once after the backward loop, as products over all T * B
rows. For one block and one input row; letters as in `rmc_jax.types`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from experiments.benchmarks.sizes import Size


class Product(NamedTuple):
  """A Linear of one example and one step: [rows, size] to [rows, width]."""

  rows: int
  size: int
  width: int

  @property
  def operations(self) -> int:
    return 2 * self.rows * self.size * self.width

  @property
  def weights(self) -> int:
    return (self.size + 1) * self.width  # with its bias


class Phase(NamedTuple):
  """A part of a step; the next one begins when it ends."""

  name: str
  operations: int  # multiplications and additions of matrix products
  bytes: int  # of the arrays that it reads or writes, each counted once
  weight_bytes: int  # that one pass reads; a pass is a step of a loop
  passes: int = 1

  @property
  def all_bytes(self) -> int:
    return self.bytes + self.passes * self.weight_bytes


def phases(
  size: Size, itemsize: int = 4, *, training: bool = True
) -> list[Phase]:
  """Counts a training step: outputs, and gradients of parameters and memory.

  Operations are those of matrix products. For one example and one step, with
  F = H * (2 * K + V), G' = 2 * D for 'unit' and 2 for 'memory' gates and J
  layers in the MLP:

    Linears before the loop   2 * (X * D + D * F + D * G')
    Linears in the loop       2 * N * (D * F + D * G' + J * D * D)
    attention                 2 * N * (N + 1) * H * (K + V)

  A Linear counts three times: for its result, for the gradient of its input
  (except the sequence, whose gradient is not computed) and for that of its
  weights. So does attention, which has two inputs. Biases, layer norms,
  softmax, gates and ReLU are not counted: some tens of operations per element,
  where products have hundreds or thousands.

  Bytes are counted for each phase: an array that passes from one phase to
  another, or to the caller, is written once and read once; an array inside a
  phase is free. The results of all Linears and the memories are saved for the
  backward loop, which recomputes the rest. Weights are read in every pass of a
  loop; how fast depends on whether they fit in a cache, so they are separate.

  Args:
    size: the core, T, B and X.
    itemsize: bytes of a number, in all arrays.
    training: False counts the forward pass without gradients.

  Returns:
    'project', 'forward loop', and in training 'backward loop' and 'weight
    gradients'.
  """
  before, loop = projection(size), recurrence(size)
  operations_before = sum(product.operations for product in before)
  operations_loop = sum(product.operations for product in loop)
  attention = attention_operations(size)
  # Numbers of one example and one step.
  projected = sum(product.rows * product.width for product in before)
  results = sum(product.rows * product.width for product in loop)
  factors = sum(product.rows * product.size for product in loop)
  outputs = size.state_size
  saved = outputs + results * training
  # Bytes of all examples and steps, and of weights.
  examples = size.steps * size.batch
  each = itemsize * examples
  weights_before = itemsize * _weights(before)
  weights_loop = itemsize * _weights(loop)

  forward = [
    Phase(
      'project',
      examples * operations_before,
      each * (size.features + projected),
      weights_before,
    ),
    Phase(
      'forward loop',
      examples * (operations_loop + attention),
      each * (projected + saved),
      weights_loop,
      size.steps,
    ),
  ]
  if not training:
    return forward
  return [
    *forward,
    Phase(
      'backward loop',
      examples * (operations_loop + 2 * attention),
      # Reads projected, saved, d outputs; writes d projected, d results.
      each * (projected + saved + outputs + projected + results),
      weights_loop,
      size.steps,
    ),
    Phase(
      'weight gradients',
      # Those of all weights, and of the inputs of the projection but the first.
      examples
      * (operations_loop + 2 * operations_before - before[0].operations),
      # Reads the factors of these products; writes the gradients.
      each * (factors + results + size.features + 2 * projected)
      + itemsize * parameters(size),
      weights_before,
    ),
  ]


def projection(size: Size) -> list[Product]:
  """Returns the Linears of inputs: input, first q, k, v, and gates.

  q, k and v are complete, although the query of the input row is unused: the
  layer norm spans them.
  """
  width = size.slot_width
  return [
    Product(1, size.features, width),
    Product(1, width, _qkv_width(size)),
    Product(1, width, _gate_width(size)),
  ]


def recurrence(size: Size) -> list[Product]:
  """Returns the Linears of the memory in one step: q, k, v, gates, and MLP."""
  slots, width = size.mem_slots, size.slot_width
  return [
    Product(slots, width, _qkv_width(size)),
    Product(slots, width, _gate_width(size)),
    *[Product(slots, width, width)] * size.mlp_layers,
  ]


def parameters(size: Size) -> int:
  """Counts scalars; inputs and memory share the weights of q, k and v."""
  linears = [projection(size)[0], projection(size)[2], *recurrence(size)]
  return _weights(linears) + 2 * (_qkv_width(size) + 2 * size.slot_width)


def attention_operations(size: Size) -> int:
  """Counts q k^T and the weighted sums of v, of one example and one step."""
  rows = size.mem_slots * (size.mem_slots + 1)
  return 2 * rows * size.num_heads * (_key_size(size) + size.head_size)


def _key_size(size: Size) -> int:
  return size.head_size if size.key_size is None else size.key_size  # K


def _qkv_width(size: Size) -> int:
  return size.num_heads * (2 * _key_size(size) + size.head_size)  # F


def _gate_width(size: Size) -> int:
  return 2 * (size.slot_width if size.gate_style == 'unit' else 1)  # 2 * G


def _weights(products: Sequence[Product]) -> int:
  return sum(product.weights for product in products)
