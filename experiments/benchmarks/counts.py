"""Counts the operations and bytes that a step of the core needs.

The counts are those of the cheapest known schedule: what does not depend on the
memory is computed for all steps at once before the loop, and the gradients of
the weights are formed once after the backward loop, as products over all T * B
rows. For one block and one input row; letters as in `rmc_jax.types`.
"""

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

  Operations are those of matrix products. A Linear counts three times: for its
  result, for the gradient of its input (except the sequence, whose gradient is
  not computed) and for that of its weights. So does attention, which has two
  inputs. Biases, layer norms, softmax, gates and ReLU are not counted: some
  tens of operations per element, where products have hundreds or thousands.

  Bytes are counted for each phase: an array that passes from one phase to
  another, or to the caller, is written once and read once; an array inside a
  phase is free. The results of all Linears and the memories are saved for the
  backward loop, which recomputes the rest. Weights are read in every pass of a
  loop; how fast depends on whether they fit in a cache, so they are separate.

  Args:
    size: the core, T, B and X.
    itemsize: bytes of a number, in all arrays.
    training: False counts the forward pass without gradients.
  """
  before, loop = projection(size), recurrence(size)
  examples = size.steps * size.batch
  # Operations of one example and one step.
  operations_before = sum(p.operations for p in before)
  operations_loop = sum(p.operations for p in loop)
  attention = attention_operations(size)
  # Bytes of the arrays of all examples and steps, and of weights.
  each = itemsize * examples
  inputs, outputs = each * size.features, each * size.state_size
  projected = each * sum(p.rows * p.width for p in before)
  results = each * sum(p.rows * p.width for p in loop)
  factors = each * sum(p.rows * p.size for p in loop)
  saved = outputs + results * training
  weights_before = itemsize * sum(p.weights for p in before)
  weights_loop = itemsize * sum(p.weights for p in loop)

  project = Phase(
    'project', examples * operations_before, inputs + projected, weights_before
  )
  forward = Phase(
    'forward loop',
    examples * (operations_loop + attention),
    projected + saved,
    weights_loop,
    size.steps,
  )
  if not training:
    return [project, forward]
  backward = Phase(
    'backward loop',
    examples * (operations_loop + 2 * attention),
    # Reads projected, saved, d outputs; writes d projected, d results.
    projected + saved + outputs + projected + results,
    weights_loop,
    size.steps,
  )
  # The gradients of all weights, and of the inputs of the projection but the
  # first: reads the factors of these products, writes the gradients.
  operations = operations_loop + 2 * operations_before - before[0].operations
  gradients = Phase(
    'weight gradients',
    examples * operations,
    factors + results + inputs + 2 * projected + itemsize * parameters(size),
    weights_before,
  )
  return [project, forward, backward, gradients]


def projection(size: Size) -> list[Product]:
  """Returns the Linears of inputs: input, first q, k, v, and gates.

  q, k and v are complete, although the query of the input row is unused: the
  layer norm spans them.
  """
  width = size.slot_width
  return [
    Product(1, size.features, width),
    Product(1, width, size.qkv_width),
    Product(1, width, size.gate_width),
  ]


def recurrence(size: Size) -> list[Product]:
  """Returns the Linears of the memory in one step: q, k, v, gates, and MLP."""
  mlp = [size.slot_width] * size.mlp_layers
  return [
    Product(size.mem_slots, size.slot_width, width)
    for width in (size.qkv_width, size.gate_width, *mlp)
  ]


def parameters(size: Size) -> int:
  """Counts scalars; inputs and memory share the weights of q, k and v."""
  linears = [projection(size)[0], projection(size)[2], *recurrence(size)]
  norms = size.qkv_width + 2 * size.slot_width
  return sum(linear.weights for linear in linears) + 2 * norms


def attention_operations(size: Size) -> int:
  """Counts q k^T and the weighted sums of v, of one example and one step."""
  rows = size.mem_slots * (size.mem_slots + 1)
  return 2 * rows * size.num_heads * (size.key_width + size.head_size)
