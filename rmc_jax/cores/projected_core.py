"""Base classes of cores that split a step into an input and a state part."""

import abc
import math
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.cores.layers import active_policy
from rmc_jax.cores.memory_matrix import to_float32
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree


class StepTrace(NamedTuple):
  """Attention weights and gates of a step, for analysis.

  Attributes:
    attention: [..., L, H, N, N + I] weights of each memory slot over the memory
      slots (first N columns) and the input rows (last I), for each block.
    gates: name -> [..., N, G] gate values in (0, 1); empty without gates.
  """

  attention: Array
  gates: dict[str, Array]


class ProjectedCore(hk.RNNCore):
  """An RNN core in two parts: `project` uses no state, `step` is recurrent.

  `core(inputs, state)` calls one after the other, so it is an ordinary
  `hk.RNNCore`. `rmc_jax.unroll` projects the whole sequence at once and loops
  over `step`: same parameters, same numbers, less work in the loop.

  The methods are `hk.transparent`, so a `jmp` policy set on the class applies
  to the layers inside. Haiku would otherwise cast the state, an argument of
  these methods, to the compute dtype at every step. For the same reason
  `hk.intercept_methods` intercepts the layers but not these methods.
  """

  def __init__(self, name: str | None = None):
    super().__init__(name=name)
    self._policy = hk.mixed_precision.get_policy(type(self))

  @hk.transparent
  def __call__(
    self, inputs: Array, state: ArrayTree
  ) -> tuple[Array, ArrayTree]:
    """Runs one step: `(output, next_state)`, the output [B, ...].

    Args:
      inputs: [B, ...], flattened to features for each example; without the B
        axis if the state has none.
      state: the core's state before the step.

    Raises:
      TypeError: the inputs are not floating-point numbers.
      ValueError: the shapes of inputs and state do not match.
    """
    inputs = self.flatten_inputs(inputs, self.batch_shape(state))
    return self.step(self.project(inputs), state)

  @abc.abstractmethod
  def project(self, inputs: Array) -> ArrayTree:
    """Computes the part of a step that depends on its inputs alone.

    Args:
      inputs: [..., features] with any leading axes: [B], [T, B] or none.

    Returns:
      A nest of arrays with the same leading axes, the argument of `step`.
    """

  @abc.abstractmethod
  def step(
    self, projected: ArrayTree, state: ArrayTree
  ) -> tuple[Array, ArrayTree]:
    """Computes the recurrent part of a step: `(output, next_state)`."""

  @hk.transparent
  def batch_shape(self, state: ArrayTree) -> tuple[int, ...]:
    """Returns the batch axes of a state, (B,) or ().

    Raises:
      ValueError: the shapes are not those of `initial_state`.
    """
    # `initial_state` may create parameters; abstractly evaluated, it does not.
    unbatched = hk.eval_shape(lambda: self.initial_state(None))
    rank = jax.tree.leaves(unbatched)[0].ndim
    shapes = jax.tree.map(jnp.shape, state)
    first = (*map(jnp.shape, jax.tree.leaves(state)), ())[0]
    batch_shape = first[: len(first) - rank][:1]
    expected = jax.tree.map(lambda s: (*batch_shape, *s.shape), unbatched)
    same_structure = jax.tree.structure(state) == jax.tree.structure(unbatched)
    if not same_structure or shapes != expected:
      raise ValueError(
        f'{self.name}: the state has shapes {shapes}, expected {expected} '
        'or another batch axis; initial_state() makes a valid state.'
      )
    return batch_shape

  @hk.transparent
  def upcast_state(self, state: ArrayTree) -> ArrayTree:
    """Casts a state to float32 if a policy is active.

    Haiku casts floating-point arguments of a module to its policy's compute
    dtype. A state passed to a model would keep that dtype in the whole unroll.
    """
    return to_float32(state) if active_policy(self._policy) else state

  @hk.transparent
  def cast_output(self, output: Array) -> Array:
    """Casts an output to the output dtype of the core's own policy.

    Without one, to the compute dtype of the surrounding module's policy.
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
    """Flattens the axes after the leading ones (and the rows) into features.

    Args:
      inputs: [*leading_shape, ...], or [*leading_shape, I, ...] for a matrix.
      leading_shape: (B,), (T, B), ...
      treat_input_as_matrix: whether to keep the axis of I rows.

    Raises:
      TypeError: the inputs are not floating-point numbers.
      ValueError: the inputs do not start with `leading_shape`, or have no axis
        for the features (and rows).
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
        f'[{expected}{rows}, features]; the leading axes must be those of the '
        'state (after time, in an unroll).'
      )
    if 0 in inputs.shape[len(leading_shape) :]:
      raise ValueError(
        f'{self.name}: inputs have shape {inputs.shape}, expected at least one '
        'feature.'
      )
    features = math.prod(inputs.shape[kept:])
    return inputs.reshape(*inputs.shape[:kept], features)


class AttendingCore(ProjectedCore):
  """A memory whose slots attend to each other and to one or more input rows."""

  @hk.transparent
  def __call__(
    self,
    inputs: Array,
    state: ArrayTree,
    treat_input_as_matrix: bool = False,
  ) -> tuple[Array, ArrayTree]:
    """Runs one step; see base class. The output is [B, N * D].

    Args:
      inputs: [B, ...], flattened to one row of features for each example; or,
        with `treat_input_as_matrix`, [B, I, ...] flattened to I rows each.
      state: the core's state before the step.
      treat_input_as_matrix: whether to attend to I input rows instead of one.
    """
    batch_shape = self.batch_shape(state)
    inputs = self.flatten_inputs(inputs, batch_shape, treat_input_as_matrix)
    return self.step(self.project(inputs, treat_input_as_matrix), state)

  @abc.abstractmethod
  def project(
    self, inputs: Array, treat_input_as_matrix: bool = False
  ) -> ArrayTree:
    """See base class; a matrix input is [..., I, features]."""

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
    """Returns a step with its trace: `((output, trace), next_state)`.

    `step` calls this method; under `jax.jit`, an unused trace costs nothing.
    """
