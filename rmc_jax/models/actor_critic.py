"""A recurrent actor-critic: torso, core, policy and value."""

from collections.abc import Sequence
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.cores import AttendingCore
from rmc_jax.cores import SpatialCore
from rmc_jax.cores import StepTrace
from rmc_jax.cores.layers import Conv2D
from rmc_jax.types import AnyArray
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree
from rmc_jax.unroll import unroll

COORDINATES = ('view', 'observation', 'none')


class AgentInputs(NamedTuple):
  """The inputs of an agent, [T, B, ...].

  Attributes:
    observation: [T, B, rows, columns, channels] or [T, B, features]; uint8 is
      divided by 255.
    last_action: [T, B] int32; 0 before the first of an episode.
    last_reward: [T, B] float32; 0 before the first of an episode.
    first: [T, B] whether the observation is the first of an episode. The core
      starts from its initial state there.
  """

  observation: AnyArray
  last_action: AnyArray
  last_reward: AnyArray
  first: AnyArray


class AgentOutput(NamedTuple):
  """The policy and the value of each observation.

  Attributes:
    logits: [T, B, A] of the policy.
    value: [T, B] expected discounted return.
  """

  logits: Array
  value: Array


class ActorCritic(hk.Module):
  """Convolutions, a core, and linear policy and value.

  The network of Santoro et al. 2018, appendix A.3: convolutions with ReLUs, two
  channels with the row and the column of each cell, evenly spaced from -1 to 1,
  and the core.

  Departures and readings: the paper tags cells with their "absolute spatial
  position"; here that is the position in the observation, so in a viewport it
  is relative to the player, unless `coordinates` is 'observation'. The paper
  gives no padding; it is SAME here, so that a ConvLSTM sees 5 x 5 cells. The
  paper gives no heads; they are linear, as in scalable_agent, unless
  `hidden_sizes` adds layers.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    core: hk.RNNCore,
    num_actions: int,
    *,
    channels: Sequence[int] = (12, 24),
    kernel_size: int = 2,
    strides: Sequence[int] | None = None,
    coordinates: str = 'view',
    cells_as_rows: bool = False,
    last_action_and_reward: bool = False,
    hidden_sizes: Sequence[int] = (),
    name: str = 'actor_critic',
  ):
    """Constructs the model.

    Args:
      core: any recurrent core.
      num_actions: A.
      channels: of each convolution; () for none, as for observations without
        rows and columns.
      kernel_size: of the convolutions.
      strides: of each convolution; None for 1.
      coordinates: of each cell. 'view': its row and column in the observation.
        'observation': the last two channels of the observation, which skip the
        convolutions. 'none'.
      cells_as_rows: whether the core attends to each cell as an input row of
        its own; only for an `AttendingCore`. Otherwise all are one input.
      last_action_and_reward: whether to append the last action, one-hot, and
        the last reward, clipped to [-1, 1], as scalable_agent does.
      hidden_sizes: ReLU layers between the core and the heads.
      name: name of the module.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is below 1, `strides` and `channels` differ in length,
        `strides` do not fit `coordinates`, or the core has no place for
        `cells_as_rows` or `last_action_and_reward`.
    """
    super().__init__(name=name)
    one_of('coordinates', coordinates, COORDINATES)
    strides = [1] * len(channels) if strides is None else strides
    positive_int('kernel_size', kernel_size)
    for argument, sizes in (
      ('channels', channels),
      ('strides', strides),
      ('hidden_sizes', hidden_sizes),
    ):
      for i, size in enumerate(sizes):
        positive_int(f'{argument}[{i}]', size)
    if len(strides) != len(channels):
      raise ValueError(
        'strides must have one number per convolution, of which there are '
        f'{len(channels)}. Got: {tuple(strides)}.'
      )
    if coordinates == 'observation' and any(stride != 1 for stride in strides):
      raise ValueError(
        "strides must be 1 with coordinates='observation', one for each cell. "
        f'Got: {tuple(strides)}.'
      )
    if cells_as_rows and not isinstance(core, AttendingCore):
      raise ValueError(
        'cells_as_rows must be False unless the core is an AttendingCore, such '
        f'as rmc_jax.RelationalMemory. Got: {type(core).__name__}.'
      )
    spatial = isinstance(core, SpatialCore)
    if last_action_and_reward and (cells_as_rows or spatial):
      raise ValueError(
        'last_action_and_reward must be False where the core has cells as '
        'inputs, with cells_as_rows=True or a SpatialCore. Got: True.'
      )
    self._core = core
    self._num_actions = num_actions
    self._convolutions = [
      Conv2D(size, kernel_size, stride, name=f'conv_{i}')
      for i, (size, stride) in enumerate(zip(channels, strides, strict=True))
    ]
    self._coordinates = coordinates
    self._cells_as_rows = cells_as_rows
    self._keep_image = spatial
    self._last_action_and_reward = last_action_and_reward
    self._mlp = hk.nets.MLP(hidden_sizes, activate_final=True, name='mlp')
    self._policy = hk.Linear(num_actions, name='policy')
    self._value = hk.Linear(1, name='value')

  @hk.transparent
  def initial_state(self, batch_size: int | None) -> ArrayTree:
    """Returns the core's state at the start of an episode."""
    return self._core.initial_state(batch_size)

  def __call__(
    self, inputs: AgentInputs, state: ArrayTree
  ) -> tuple[AgentOutput, ArrayTree]:
    """Computes policies and values of a sequence, and the last state.

    Args:
      inputs: [T, B, ...]; an actor has a T of 1.
      state: of the core before the first step.
    """
    outputs, state = self._unroll(inputs, state)
    return self._heads(outputs), state

  def trace(
    self, inputs: AgentInputs, state: ArrayTree
  ) -> tuple[tuple[AgentOutput, StepTrace], ArrayTree]:
    """Like `__call__`, and also returns the trace of an `AttendingCore`."""
    (outputs, trace), state = self._unroll(inputs, state, return_trace=True)
    return (self._heads(outputs), trace), state

  @hk.transparent
  def _unroll(self, inputs: AgentInputs, state: ArrayTree, **options):
    if self._cells_as_rows:
      options['treat_input_as_matrix'] = True
    features = self._torso(inputs)
    reset = jnp.asarray(inputs.first)
    return unroll(self._core, features, state, reset=reset, **options)

  @hk.transparent
  def _torso(self, inputs: AgentInputs) -> Array:
    """Returns features, cells or images, [T, B, ...], as the core needs."""
    leading = inputs.first.shape  # [T, B]
    x = jnp.asarray(inputs.observation)
    scale = 1 / 255 if x.dtype == jnp.uint8 else 1.0
    x = scale * x.astype(jnp.float32)
    if self._convolutions or self._coordinates != 'none':
      if x.ndim != 5:
        raise ValueError(
          'observation must be [T, B, rows, columns, channels], unless '
          f"channels is () and coordinates 'none'. Got shape: {x.shape}."
        )
      x = x.reshape(-1, *x.shape[2:])  # [T * B, rows, columns, channels]
      x = self._cells(x)
      x = x.reshape(*leading, *x.shape[1:])
    if self._keep_image:
      return x
    if self._cells_as_rows:
      return x.reshape(*leading, -1, x.shape[-1])
    x = x.reshape(*leading, -1)
    if not self._last_action_and_reward:
      return x
    reward = jnp.clip(inputs.last_reward, -1, 1)[..., None]
    action = jax.nn.one_hot(inputs.last_action, self._num_actions)
    return jnp.concatenate([x, action, reward], -1)

  @hk.transparent
  def _cells(self, x: Array) -> Array:
    """Applies the convolutions and appends the coordinates."""
    observed = []
    if self._coordinates == 'observation':
      x, observed = x[..., :-2], [x[..., -2:]]
    for convolution in self._convolutions:
      x = jax.nn.relu(convolution(x))
    if self._coordinates == 'view':
      return append_coordinates(x)
    return jnp.concatenate([x, *observed], -1)

  @hk.transparent
  def _heads(self, outputs: Array) -> AgentOutput:
    hidden = self._mlp(outputs)
    return AgentOutput(self._policy(hidden), self._value(hidden)[..., 0])


def append_coordinates(images: Array) -> Array:
  """Appends two channels, row and column from -1 to 1, to [B, rows, ...]."""
  rows, columns = images.shape[1:3]
  grid = jnp.meshgrid(
    jnp.linspace(-1.0, 1.0, rows),
    jnp.linspace(-1.0, 1.0, columns),
    indexing='ij',
  )
  tags = jnp.stack(grid, -1)  # [rows, columns, 2]
  tags = jnp.broadcast_to(tags, (*images.shape[:-1], 2))
  return jnp.concatenate([images, tags], -1)
