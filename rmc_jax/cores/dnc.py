"""The Differentiable Neural Computer, a baseline of the RMC paper."""

import contextlib
import dataclasses
import math
from typing import Any
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import jmp

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.layers import Linear
from rmc_jax.cores.lstm import LSTM
from rmc_jax.cores.memory_matrix import add_batch_axis
from rmc_jax.cores.memory_matrix import cast_like
from rmc_jax.cores.memory_matrix import flatten_rows
from rmc_jax.cores.memory_matrix import to_float32
from rmc_jax.cores.projected_core import ProjectedCore
from rmc_jax.ops import dnc_addressing as addressing
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

CONTROLLERS = ('lstm', 'feed_forward')


@dataclasses.dataclass
class DNCConfig(CoreConfig):
  """The arguments of `DNC`."""

  name: str = 'dnc'
  memory_size: int = 80
  word_size: int = 64
  num_reads: int = 4
  num_writes: int = 1
  controller: str = 'lstm'
  hidden_size: int = 256
  num_layers: int = 2
  output_size: int | None = None
  clip_value: float | None = 20.0


class DNCState(NamedTuple):
  """The state of a DNC; letters as in `rmc_jax.ops.dnc_addressing`.

  Attributes:
    memory: [..., N, W] a word in each slot.
    read_weights: [..., R, N] slots that each head read.
    write_weights: [..., J, N] slots that each head wrote.
    link: [..., J, N, N] the order in which slots were written.
    precedence: [..., J, N] degree to which each slot was written last.
    usage: [..., N] degree to which each slot is in use.
    reads: [..., R, W] the words read.
    controller: the controller's state; () if it is feed-forward.
  """

  memory: Array
  read_weights: Array
  write_weights: Array
  link: Array
  precedence: Array
  usage: Array
  reads: Array
  controller: ArrayTree


class DNC(ProjectedCore):
  r"""A controller that writes words to a memory of slots and reads them.

  One step on input x, with the words :math:`r` read in the previous step:

  .. math::

     \begin{array}{ll}
     y = \mathrm{clip}(\mathrm{Controller}([x; r])) & \\
     \xi = \mathrm{Linear}(y) & \text{instructions to the heads} \\
     M' = \mathrm{write}(M, \xi), \quad r' = \mathrm{read}(M', \xi) & [R, W] \\
     \mathrm{output} = \mathrm{clip}(\mathrm{Linear}([y; r'])) &
     \end{array}

  `rmc_jax.ops.dnc_addressing` computes the slots to write and read. Usage is
  updated with the previous step's weights before the write; writes address the
  old memory by content, reads the new one.

  Source: Graves et al. 2016, "Hybrid computing using a neural network with
  dynamic external memory", as released by its authors in `dnc.py`, `access.py`
  and `addressing.py` of google-deepmind/dnc. The default sizes are those of
  Santoro et al. 2018, appendix A.2, which swept 128, 256 and 512 units per
  layer, with an LSTM controller for programs and a feed-forward controller for
  memorization.

  Notes:
    One Linear, `interface`, replaces the original's ten. Its columns are, in
    this order: write vectors J * W, erase vectors J * W, free gates R,
    allocation gates J, write gates J, read modes R * (2 * J + 1), write keys
    J * W, write strengths J, read keys R * W, read strengths R; the columns of
    one head are adjacent.
    The released controller is one LSTM layer, `num_layers=1`. With several, as
    in Graves et al., every layer reads x and the last reads, and the output
    concatenates those of all layers.
    Where Santoro et al. are silent: the feed-forward controller has a ReLU
    after each layer, like the MLPs that they describe; values are clipped to
    20, as in the released demonstration; the output has the width of one layer.
    A policy applies to the Linears; addressing stays in float32, because it
    compares small differences. After the first write to an empty memory, the
    free slots differ by rounding only, so other devices or precisions may
    choose other slots.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    memory_size: int = 80,
    word_size: int = 64,
    num_reads: int = 4,
    num_writes: int = 1,
    controller: str = 'lstm',
    hidden_size: int = 256,
    num_layers: int = 2,
    output_size: int | None = None,
    clip_value: float | None = 20.0,
    name: str = 'dnc',
  ):
    """Constructs the core.

    Args:
      memory_size: N, the number of slots.
      word_size: W, the width of a slot.
      num_reads: R, the number of read heads.
      num_writes: J, the number of write heads.
      controller: 'lstm', or 'feed_forward', which has no state of its own.
      hidden_size: units in each layer of the controller.
      num_layers: layers of the controller.
      output_size: width of the output; None means `hidden_size`.
      clip_value: bound on the absolute values of the controller's output and
        state and of the core's output; None for no bound.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is below 1, `clip_value` is not positive, or the
        controller is unknown.
    """
    super().__init__(name=name)
    slots = positive_int('memory_size', memory_size)
    word = positive_int('word_size', word_size)
    reads = positive_int('num_reads', num_reads)
    writes = positive_int('num_writes', num_writes)
    hidden_size = positive_int('hidden_size', hidden_size)
    num_layers = positive_int('num_layers', num_layers)
    output_size = hidden_size if output_size is None else output_size
    output_size = positive_int('output_size', output_size)
    one_of('controller', controller, CONTROLLERS)
    if clip_value is not None and not clip_value > 0:
      raise ValueError(
        f'clip_value must be > 0, or None not to clip. Got: {clip_value}.'
      )
    self._clip_value = clip_value
    if controller == 'lstm':
      # An LSTM reads its policy when it is constructed.
      with (
        hk.mixed_precision.push_policy(LSTM, self._policy)
        if self._policy
        else contextlib.nullcontext()
      ):
        self._controller = LSTM(
          hidden_size, num_layers, reads * word, name='controller'
        )
    else:
      self._controller = _FeedForward(
        hidden_size, num_layers, reads * word, self._policy, name='controller'
      )
    self._state_shapes = {
      'memory': (slots, word),
      'read_weights': (reads, slots),
      'write_weights': (writes, slots),
      'link': (writes, slots, slots),
      'precedence': (writes, slots),
      'usage': (slots,),
      'reads': (reads, word),
    }
    # In the order of the interface's columns.
    self._interface_shapes = _Interface(
      write_words=(writes, word),
      erase=(writes, word),
      free_gates=(reads,),
      allocation_gates=(writes,),
      write_gates=(writes,),
      read_modes=(reads, 2 * writes + 1),
      write_keys=(writes, word),
      write_strengths=(writes,),
      read_keys=(reads, word),
      read_strengths=(reads,),
    )
    width = sum(map(math.prod, self._interface_shapes))
    self._interface = Linear(width, policy=self._policy, name='interface')
    self._output = Linear(output_size, policy=self._policy, name='output')

  @hk.transparent
  def initial_state(self, batch_size: int | None) -> DNCState:
    """Returns zeros, an empty memory, with a leading B axis unless None."""
    zeros = {k: jnp.zeros(v) for k, v in self._state_shapes.items()}
    controller = self._controller.initial_state(batch_size)
    return DNCState(**add_batch_axis(zeros, batch_size), controller=controller)

  @hk.transparent
  def project(self, inputs: Array) -> ArrayTree:
    """See base class. Returns the controller's input part."""
    return self._controller.project(inputs)

  @hk.transparent
  def step(
    self, projected: ArrayTree, state: DNCState
  ) -> tuple[Array, DNCState]:
    """See base class. The output is [..., output_size]."""
    before = to_float32(state)
    hidden, controller = self._clip(
      self._controller.step(
        projected, before.controller, feedback=flatten_rows(before.reads)
      )
    )
    interface = _parse(self._interface(hidden), self._interface_shapes)
    after = _write_and_read(interface, before)._replace(controller=controller)
    rows = jnp.concatenate([hidden, flatten_rows(after.reads)], axis=-1)
    output = self._clip(self._output(rows))
    return self.cast_output(output), cast_like(after, state)

  @hk.transparent
  def _clip(self, tree: ArrayTree) -> ArrayTree:
    """Clips the arrays of a nest to +-`clip_value`."""
    if (size := self._clip_value) is None:
      return tree
    return jax.tree.map(lambda x: jnp.clip(x, -size, size), tree)


class _FeedForward(hk.Module):
  """A controller of ReLU layers, without a state."""

  @hk.name_like('__call__')
  def __init__(
    self,
    hidden_size: int,
    num_layers: int,
    feedback_size: int,
    policy: jmp.Policy | None,
    name: str,
  ):
    super().__init__(name=name)
    self._feedback_size = feedback_size
    self._input = Linear(hidden_size, policy=policy, name='input')
    self._feedback = Linear(hidden_size, False, policy=policy, name='feedback')
    self._layers = [
      Linear(hidden_size, policy=policy, name=f'linear_{i}')
      for i in range(1, num_layers)
    ]

  @hk.transparent
  def initial_state(self, batch_size: int | None) -> tuple[()]:
    del batch_size
    return ()

  @hk.transparent
  def project(self, inputs: Array) -> Array:
    """Returns the input part of the first layer, [..., Y]."""
    # Both are parts of one weight and share its initial scale.
    fan_in = inputs.shape[-1] + self._feedback_size
    self._input.make_weight(inputs.shape[-1], inputs.dtype, fan_in)
    self._feedback.make_weight(self._feedback_size, inputs.dtype, fan_in)
    return self._input(inputs)

  @hk.transparent
  def step(
    self, projected: Array, state: tuple[()], feedback: Array
  ) -> tuple[Array, tuple[()]]:
    """Returns the output [..., Y] and the empty state."""
    x = jax.nn.relu(projected + self._feedback(feedback))
    for layer in self._layers:
      x = jax.nn.relu(layer(x))
    return x, state


class _Interface(NamedTuple):
  """The controller's instructions to the heads, or the shape of each."""

  write_words: Any  # [..., J, W] words to write
  erase: Any  # [..., J, W] in (0, 1), degree of erasure of the slots written
  free_gates: Any  # [..., R] in (0, 1), whether to free the slots read
  allocation_gates: Any  # [..., J] in (0, 1), 1: free slot, 0: by content
  write_gates: Any  # [..., J] in (0, 1), whether to write
  read_modes: Any  # [..., R, 2 * J + 1] backward, forward, content; sum to 1
  write_keys: Any  # [..., J, W] content to write to
  write_strengths: Any  # [..., J] sharpness of the search
  read_keys: Any  # [..., R, W] content to read
  read_strengths: Any  # [..., R] sharpness of the search


def _parse(columns: Array, shapes: _Interface) -> _Interface:
  """Splits the interface's columns and maps each part to its range."""
  sizes = [math.prod(shape) for shape in shapes]
  # The gates are adjacent, so one sigmoid serves all four.
  write, gates, rest = jax.lax.split(
    columns, [sizes[0], sum(sizes[1:5]), sum(sizes[5:])], axis=columns.ndim - 1
  )
  columns = jnp.concatenate([write, jax.nn.sigmoid(gates), rest], axis=-1)
  parts = jax.lax.split(columns, sizes, axis=columns.ndim - 1)
  raw = _Interface(
    *(
      part.reshape(*part.shape[:-1], *shape)
      for part, shape in zip(parts, shapes, strict=True)
    )
  )
  return raw._replace(read_modes=jax.nn.softmax(raw.read_modes))


def _write_and_read(do: _Interface, state: DNCState) -> DNCState:
  """Returns the state after one step, with the controller's state unchanged."""
  usage = addressing.usage_after_writes(state.usage, state.write_weights)
  usage = addressing.usage_after_reads(usage, do.free_gates, state.read_weights)
  allocations = addressing.write_allocations(
    usage, do.allocation_gates * do.write_gates
  )
  content = addressing.content_weights(
    do.write_keys, do.write_strengths, state.memory
  )
  write_weights = addressing.write_weights(
    do.write_gates, do.allocation_gates, allocations, content
  )
  memory = addressing.erase_and_add(
    state.memory, write_weights, do.erase, do.write_words
  )

  link = addressing.next_link(state.link, state.precedence, write_weights)
  backward, forward = addressing.follow_links(link, state.read_weights)
  content = addressing.content_weights(do.read_keys, do.read_strengths, memory)
  read_weights = addressing.read_weights(
    do.read_modes, backward, forward, content
  )
  return state._replace(
    memory=memory,
    read_weights=read_weights,
    write_weights=write_weights,
    link=link,
    precedence=addressing.next_precedence(state.precedence, write_weights),
    usage=usage,
    reads=addressing.read_words(read_weights, memory),
  )
