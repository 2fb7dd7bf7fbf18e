"""A game without randomness for the tests of wrappers."""

import dataclasses

import jax
import jax.numpy as jnp

from rmc_jax.envs.environment import Environment
from rmc_jax.envs.types import Outcome


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Count:
  start: jax.Array
  step: jax.Array


@dataclasses.dataclass(frozen=True)
class Counter(Environment):
  """Starts at a random number and counts; action 1 terminates.

  The parameter is the limit of steps. An observation, [1, 2, 1], is the start
  and the steps.
  """

  num_actions = 2
  observation_spec = jax.ShapeDtypeStruct((1, 2, 1), jnp.int32)
  observation_limit = 10**6

  def reset(self, key, params):
    start = jax.random.randint(key, (), 0, 10**6)
    return Count(start, jnp.zeros((), jnp.int32))

  def step(self, key, state, action, params):
    state = dataclasses.replace(state, step=state.step + 1)
    terminated = jnp.asarray(action) == 1
    truncated = ~terminated & (state.step >= params)
    return state, Outcome(state.step * 0.5, terminated, truncated)

  def observe(self, state, params):
    return jnp.stack([state.start, state.step])[None, :, None]
