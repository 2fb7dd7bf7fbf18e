"""One game for programs that call it step by step."""

import functools
from typing import Any

import jax
import numpy as np

from rmc_jax.checks import positive_int
from rmc_jax.envs.environment import Environment
from rmc_jax.envs.types import Outcome
from rmc_jax.types import Array


class HostGame:
  """A game with its state and its random numbers.

  Attributes:
    env: the game.
    params: its parameters.
    state: None before the first reset.
  """

  def __init__(self, env: Environment, params: Any, seed: int):
    """Initialises the game; the seed is as in `make_key`."""
    self.env = env
    # As arrays, because Python numbers are converted in every call.
    self.params = jax.device_put(params)
    self.state: Any = None
    self.seed(seed)

  def seed(self, seed: int) -> None:
    """Starts another sequence of random numbers."""
    self._key = make_key(seed)

  def reset(self) -> np.ndarray:
    """Starts an episode; returns the observation."""
    self._key, self.state, pixels = reset(self.env, self._key, self.params)
    return np.array(pixels)

  def step(self, action: Any) -> tuple[np.ndarray, Outcome]:
    """Returns the observation and the outcome of an action."""
    action = np.int32(action)  # One type, so that there is one program.
    self._key, self.state, pixels, outcome = _step(
      self.env, self._key, self.state, action, self.params
    )
    return np.array(pixels), jax.device_get(outcome)


def make_key(seed: int) -> Array:
  """Returns the PRNG key of a seed.

  Raises:
    TypeError: the seed is not an integer.
    ValueError: it is negative or needs more than 32 bits.
  """
  if positive_int('seed', seed, least=0) >= 2**32:
    raise ValueError(f'seed must be below 2**32. Got: {seed}.')
  return jax.random.key(np.uint32(seed))


# A program for each environment and set of static rules, shared by all objects.
@functools.partial(jax.jit, static_argnums=0)
def reset(env: Environment, key: Array, params: Any) -> tuple[Any, ...]:
  """Returns the next key, the first state and its observation."""
  key, subkey = jax.random.split(key)
  state = env.reset(subkey, params)
  return key, state, env.observe(state, params)


@functools.partial(jax.jit, static_argnums=0)
def _step(
  env: Environment, key: Array, state: Any, action: Array, params: Any
) -> tuple[Any, ...]:
  key, subkey = jax.random.split(key)
  state, outcome = env.step(subkey, state, action, params)
  return key, state, env.observe(state, params), outcome
