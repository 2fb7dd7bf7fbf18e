"""What a core must offer to have its input-only work done before the loop."""

import abc
import math
from typing import NamedTuple

import haiku as hk
import jax.numpy as jnp

from rmc_jax.cores.layers import active_policy
from rmc_jax.cores.memory_matrix import wide
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree


class StepTrace(NamedTuple):
  """What a memory core attended to and how it gated, for analysis.

  Attributes:
    attention: [..., L, H, N, N + I] weights from each memory slot to the memory
      slots (first N columns) and to the input rows (last I), for each block.
    gates: name -> [..., N, G] gate values in (0, 1); empty for an ungated core.
  """

  attention: Array
  gates: dict[str, Array]


class ProjectedCore(hk.RNNCore):
  """An RNN core in two parts: `project` sees no state, `step` is recurrent.

  `core(inputs, state)` is one after the other, so it is an ordinary
  `hk.RNNCore`. `rmc_jax.unroll` projects the whole sequence in one go and loops
  over `step` alone: same parameters, same numbers, less work in the loop. A
  subclass that overrides `__call__` must override these parts as well.

  The methods are `hk.transparent`: a `jmp` policy set on the class is applied
  by the layers inside and does not round the state, which is an argument here,
  to its compute dtype at every step, as Haiku's interceptor would. For the same
  reason `hk.intercept_methods` sees the layers and not these methods.
  """

  def __init__(self, name: str | None = None):
    super().__init__(name=name)
    self._policy = hk.mixed_precision.get_policy(type(self))

  @hk.transparent
  def __call__(
    self, inputs: Array, state: ArrayTree
  ) -> tuple[Array, ArrayTree]:
    """One step.

    Args:
      inputs: [B, ...], flattened to features for each example. Without the B
        axis where the state has none.
      state: the core's state before the step.

    Returns:
      The output, [B, ...], and the next state.

    Raises:
      TypeError: the inputs are not floating-point numbers.
      ValueError: the shapes of inputs and state do not fit.
    """
    inputs = self.flatten_inputs(inputs, self.batch_shape(state))
    return self.step(self.project(inputs), state)

  @abc.abstractmethod
  def project(self, inputs: Array) -> ArrayTree:
    """Everything a step needs of its inputs, without looking at the state.

    Args:
      inputs: [..., features] under any leading axes: [B], [T, B] or none.

    Returns:
      A nest of arrays with the same leading axes, for `step` to consume.
    """

  @abc.abstractmethod
  def step(
    self, projected: ArrayTree, state: ArrayTree
  ) -> tuple[Array, ArrayTree]:
    """The recurrent part of one step: `(output, next_state)`."""

  @abc.abstractmethod
  def batch_shape(self, state: ArrayTree) -> tuple[int, ...]:
    """The leading axes of a state, (B,) or (); raises if its shape is wrong."""

  @hk.transparent
  def widen_state(self, state: ArrayTree) -> ArrayTree:
    """Undoes what a policy did to a state that went through another module.

    Under a policy every floating-point argument of a module is narrowed, and a
    state that came that way would stay narrow for the whole unroll.

    Args:
      state: any state of this core.

    Returns:
      The state, in float32 or wider if a policy is active.
    """
    return wide(state) if active_policy(self._policy) else state

  @hk.transparent
  def cast_output(self, output: Array) -> Array:
    """An output in the dtype that a policy wants.

    That is the output dtype of the core's own policy; inside a module with one,
    where the next layer is narrow too, the compute dtype, as for any module.
    """
    if self._policy:
      return self._policy.cast_to_output(output)
    surrounding = active_policy(None)
    return surrounding.cast_to_compute(output) if surrounding else output

  @hk.transparent
  def flatten_inputs(
    self,
    inputs: Array,
    leading_shape: tuple[int, ...],
    treat_input_as_matrix: bool = False,
  ) -> Array:
    """Flattens all axes after the leading ones (and the rows) into features.

    Args:
      inputs: [*leading_shape, ...], or [*leading_shape, I, ...] for a matrix.
      leading_shape: (B,), (T, B), ...; what the inputs must begin with.
      treat_input_as_matrix: as for `__call__`.

    Returns:
      [*leading_shape, features] or [*leading_shape, I, features].

    Raises:
      TypeError: the inputs are not floating-point numbers.
      ValueError: the inputs do not begin with `leading_shape`, or no axis is
        left for the features (and rows).
    """
    inputs = jnp.asarray(inputs)
    if not jnp.issubdtype(inputs.dtype, jnp.floating):
      raise TypeError(
        f'{self.name}: inputs are {inputs.dtype}, expected floating point; '
        'embed or one-hot encode them first.'
      )
    kept = len(leading_shape) + bool(treat_input_as_matrix)
    if inputs.shape[: len(leading_shape)] != leading_shape or (
      inputs.ndim <= kept
    ):
      rows = ', rows' if treat_input_as_matrix else ''
      expected = ', '.join(map(str, leading_shape)) or 'no batch axis'
      raise ValueError(
        f'{self.name}: inputs have shape {inputs.shape}, expected '
        f'[{expected}{rows}, features]; the leading axes are those of the '
        'state (and of time, in an unroll).'
      )
    if 0 in inputs.shape[len(leading_shape) :]:
      raise ValueError(
        f'{self.name}: inputs have shape {inputs.shape}, which leaves no '
        'features to read.'
      )
    features = math.prod(inputs.shape[kept:])
    return inputs.reshape(*inputs.shape[:kept], features)


class AttendingCore(ProjectedCore):
  """A memory of slots that attend, whose input may be a matrix of rows."""

  @hk.transparent
  def __call__(
    self,
    inputs: Array,
    state: ArrayTree,
    treat_input_as_matrix: bool = False,
  ) -> tuple[Array, ArrayTree]:
    """One step.

    Args:
      inputs: [B, ...], flattened to one row of features for each example; or,
        with `treat_input_as_matrix`, [B, I, ...] flattened to I rows each.
        Without the B axis where the state has none.
      state: the core's state before the step.
      treat_input_as_matrix: whether to join I rows to the memory, or one.

    Returns:
      The output, [B, N * D], and the next state.

    Raises:
      TypeError: the inputs are not floating-point numbers.
      ValueError: the shapes of inputs and state do not fit.
    """
    batch_shape = self.batch_shape(state)
    inputs = self.flatten_inputs(inputs, batch_shape, treat_input_as_matrix)
    return self.step(self.project(inputs, treat_input_as_matrix), state)

  @abc.abstractmethod
  def project(
    self, inputs: Array, treat_input_as_matrix: bool = False
  ) -> ArrayTree:
    """See base class; or [..., I, features] for a matrix, I rows to join."""

  @hk.transparent
  def step(
    self, projected: ArrayTree, state: ArrayTree
  ) -> tuple[Array, ArrayTree]:
    """See base class. The output is [..., N * D]."""
    (output, _), next_state = self.trace_step(projected, state)
    return output, next_state

  @abc.abstractmethod
  def trace_step(
    self, projected: ArrayTree, state: ArrayTree
  ) -> tuple[tuple[Array, StepTrace], ArrayTree]:
    """`step` with its `StepTrace`: `((output, trace), next_state)`.

    It is the same computation. Under `jax.jit`, `step` costs nothing extra,
    since a trace that nobody returns is never computed.
    """

  @hk.transparent
  def _flatten_slots(self, slots: Array) -> Array:
    """[..., N, D] as an output, [..., N * D]."""
    width = math.prod(slots.shape[-2:])
    return self.cast_output(slots.reshape(*slots.shape[:-2], width))
