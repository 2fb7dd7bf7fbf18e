"""Shows the last few observations instead of one."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from rmc_jax.checks import positive_int
from rmc_jax.envs.environment import Wrapper
from rmc_jax.envs.types import Outcome
from rmc_jax.types import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FrameStackState:
  """A state with the last observations."""

  game: Any  # the state of `env`
  frames: Array  # [num_frames, rows, columns, channels], oldest first


@dataclasses.dataclass(frozen=True)
class FrameStack(Wrapper):
  """Stacks the last observations of `env` along the channels, oldest first.

  The first observation of an episode fills the stack. Goes around `AutoReset`,
  so that a step renders once.

  Attributes:
    env: the environment, which may reset by itself.
    num_frames: number of observations in the stack.
  """

  num_frames: int = 4

  def __post_init__(self):
    positive_int('num_frames', self.num_frames)

  @property
  def observation_spec(self) -> jax.ShapeDtypeStruct:
    """(rows, columns, num_frames * channels)."""
    spec = self.env.observation_spec
    *size, channels = spec.shape
    shape = *size, self.num_frames * channels
    return jax.ShapeDtypeStruct(shape, spec.dtype)

  def reset(self, key: Array, params: Any) -> FrameStackState:
    """As in `env`."""
    game = self.env.reset(key, params)
    return FrameStackState(game, self._repeat(self.env.observe(game, params)))

  def step(
    self, key: Array, state: FrameStackState, action: Array, params: Any
  ) -> tuple[FrameStackState, Outcome]:
    """As in `env`."""
    game, outcome = self.env.step(key, state.game, action, params)
    newest = self.env.observe(game, params)
    frames = _append(state.frames, newest)
    if outcome.final_state is None:  # No automatic resets.
      return FrameStackState(game, frames), outcome
    ended = outcome.terminated | outcome.truncated
    frames = jnp.where(ended, self._repeat(newest), frames)
    last = self.env.observe(outcome.final_state, params)
    final = FrameStackState(outcome.final_state, _append(state.frames, last))
    outcome = outcome._replace(final_state=final)
    return FrameStackState(game, frames), outcome

  def observe(self, state: FrameStackState, params: Any) -> Array:
    """Returns the frames side by side in the channels."""
    del params
    frames = jnp.moveaxis(state.frames, 0, -2)  # [rows, columns, frames, C]
    return frames.reshape(self.observation_spec.shape)

  def _repeat(self, pixels: Array) -> Array:
    return jnp.broadcast_to(pixels[None], (self.num_frames, *pixels.shape))


def _append(frames: Array, newest: Array) -> Array:
  return jnp.concatenate([frames[1:], newest[None]])
