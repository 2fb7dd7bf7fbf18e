"""Starts a new episode in the step that ends one."""

import dataclasses
from typing import Any

import jax

from rmc_jax.envs.environment import select
from rmc_jax.envs.environment import Wrapper
from rmc_jax.envs.types import Outcome
from rmc_jax.types import Array


@dataclasses.dataclass(frozen=True)
class AutoReset(Wrapper):
  """Resets `env` when an episode ends.

  The state after a step that ends an episode is the first of the next one, and
  `outcome.final_state` the last of the one that ended. So an agent observes
  once for each step, and only those that need the final observation pay for it:

    state, outcome = env.step(key, state, action, params)
    pixels = env.observe(state, params)
    last_pixels = env.observe(outcome.final_state, params)

  A new state is drawn in every step, as `jax.vmap` cannot skip it. If `reset`
  is expensive, as in BoxWorld, wrap a `LevelBank`.
  """

  def step(
    self, key: Array, state: Any, action: Array, params: Any
  ) -> tuple[Any, Outcome]:
    """As in `env`, then resets if the episode ended; consumes the key."""
    step_key, reset_key = jax.random.split(key)
    final, outcome = super().step(step_key, state, action, params)
    ended = outcome.terminated | outcome.truncated
    fresh = self.env.reset(reset_key, params)
    return select(ended, fresh, final), outcome._replace(final_state=final)
