"""Counts the return and the length of episodes."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from rmc_jax.envs.environment import Wrapper
from rmc_jax.envs.types import Outcome
from rmc_jax.types import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EpisodeState:
  """A state with the statistics of its episode so far."""

  game: Any  # the state of `env`
  episode_return: Array  # [] float32, the undiscounted sum of rewards
  episode_length: Array  # [] int32, steps


@dataclasses.dataclass(frozen=True)
class EpisodeStatistics(Wrapper):
  """Adds the return and the length of the episode to the states of `env`.

  Goes inside `AutoReset`. Where an episode ended, the statistics of the
  whole episode are in `outcome.final_state`.
  """

  def reset(self, key: Array, params: Any) -> EpisodeState:
    """As in `env`, with a return and a length of 0."""
    zero = jnp.zeros((), jnp.int32)
    game = self.env.reset(key, params)
    return EpisodeState(game, jnp.zeros((), jnp.float32), zero)

  def step(
    self, key: Array, state: EpisodeState, action: Array, params: Any
  ) -> tuple[EpisodeState, Outcome]:
    """As in `env`."""
    game, outcome = super().step(key, state.game, action, params)
    state = EpisodeState(
      game, state.episode_return + outcome.reward, state.episode_length + 1
    )
    return state, outcome

  def observe(self, state: EpisodeState, params: Any) -> Array:
    """As in `env`."""
    return self.env.observe(state.game, params)
