"""The games for programs written for dm_env."""

from typing import Any

import dm_env
from dm_env import specs
import numpy as np

from rmc_jax.envs.adapters.host import HostGame
from rmc_jax.envs.environment import Environment


class DmEnv(dm_env.Environment):
  """One game with the interface of dm_env.

    env = DmEnv(*rmc_jax.envs.make('box_world'), seed=1)
    timestep = env.reset()

  The discount of the last step is 0 if the episode terminated, and 1 if it was
  truncated. The step after it ignores its action and starts an episode.

  Attributes:
    game: the game with its state and parameters.
  """

  def __init__(self, env: Environment, params: Any, seed: int = 0):
    """Initialises the environment.

    Args:
      env: the game, without `AutoReset`.
      params: its parameters.
      seed: an integer below 2**32.
    """
    self.game = HostGame(env, params, seed)
    self._ended = True

  def reset(self) -> dm_env.TimeStep:
    """Starts an episode."""
    self._ended = False
    return dm_env.restart(self.game.reset())

  def step(self, action: Any) -> dm_env.TimeStep:
    """Takes an action; raises ValueError for one that is out of range."""
    if self._ended:
      return self.reset()
    if np.asarray(action).dtype.kind not in 'iu':
      raise ValueError(f'action must be an integer. Got: {action!r}.')
    action = self.action_spec().validate(np.asarray(action, np.int32))
    pixels, outcome = self.game.step(action)
    self._ended = bool(outcome.terminated or outcome.truncated)
    if outcome.terminated:
      return dm_env.termination(outcome.reward, pixels)
    if outcome.truncated:
      return dm_env.truncation(outcome.reward, pixels)
    return dm_env.transition(outcome.reward, pixels)

  def action_spec(self) -> specs.DiscreteArray:
    """Integers below the number of actions."""
    return specs.DiscreteArray(self.game.env.num_actions, name='action')

  def observation_spec(self) -> specs.BoundedArray:
    """(rows, columns, channels), from 0 to the limit of the environment."""
    spec = self.game.env.observation_spec
    return specs.BoundedArray(
      spec.shape,
      np.dtype(spec.dtype),
      0,
      self.game.env.observation_limit,
      name='observation',
    )

  def reward_spec(self) -> specs.Array:
    """A float32."""
    return specs.Array((), np.float32, name='reward')
