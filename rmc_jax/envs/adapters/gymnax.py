"""The games for programs written for gymnax, 1.0 or later."""

import functools
from typing import Any

from gymnax.environments import environment  # pyright: ignore[reportMissingImports]
from gymnax.environments import spaces  # pyright: ignore[reportMissingImports]
import jax

from rmc_jax.envs.environment import Environment
from rmc_jax.envs.wrappers.auto_reset import AutoReset
from rmc_jax.types import Array


class GymnaxEnv(environment.Environment):
  """A game with the interface of gymnax.

    env = GymnaxEnv(*rmc_jax.envs.make('mini_pacman'))
    pixels, state = env.reset(key)
    pixels, state, reward, terminated, truncated, info = env.step(
        key, state, action)

  As in gymnax, a step that ends an episode returns the first state and
  observation of the next one, and `info['final_observation']` is the last one.
  Code written for gymnax before 1.0 needs its `LegacyStepAPIWrapper`.
  """

  def __init__(self, env: Environment, params: Any):
    """Initialises the environment.

    Args:
      env: the game, without `AutoReset`.
      params: the parameters where a method gets none.
    """
    super().__init__()
    self._env = env
    self._params = params

  @property
  def default_params(self) -> Any:
    """The parameters given on construction."""
    return self._params

  @property
  def name(self) -> str:
    """The name of the class of the game."""
    return type(self._env).__name__

  @property
  def num_actions(self) -> int:
    """As in the game."""
    return self._env.num_actions

  @functools.partial(jax.jit, static_argnames='self')
  def step(
    self, key: Array, state: Any, action: Any, params: Any = None
  ) -> tuple[Array, Any, Array, Array, Array, dict[Any, Any]]:
    """Returns observation, state, reward, terminated, truncated, info.

    Overrides gymnax's, which selects between two observations, so that XLA can
    drop the final observation from programs that do not use it.
    """
    params = self._params if params is None else params
    state, outcome = AutoReset(self._env).step(key, state, action, params)
    info = {
      'terminated': outcome.terminated,
      'truncated': outcome.truncated,
      'final_observation': self._env.observe(outcome.final_state, params),
    }
    pixels = self._env.observe(state, params)
    return (pixels, state, *outcome[:3], info)

  def reset_env(self, key: Array, params: Any) -> tuple[Array, Any]:
    """Returns the observation and the state of a new episode."""
    state = self._env.reset(key, params)
    return self._env.observe(state, params), state

  def step_env(
    self, key: Array, state: Any, action: Any, params: Any
  ) -> tuple[Array, Any, Array, Array, dict[Any, Any]]:
    """Returns observation, state, reward, terminated, info, with no reset."""
    state, outcome = self._env.step(key, state, action, params)
    info = {'truncated': outcome.truncated}
    pixels = self._env.observe(state, params)
    return pixels, state, outcome.reward, outcome.terminated, info

  def get_obs(self, state: Any, params: Any = None, key: Any = None) -> Array:
    """Returns the observation of a state."""
    del key
    return self._env.observe(state, self._params if params is None else params)

  def is_truncated(self, state: Any, params: Any = None) -> Array:
    """Returns whether the limit of steps has been reached; without wrappers."""
    params = self._params if params is None else params
    return state.step >= params.max_steps

  def action_space(self, params: Any = None) -> spaces.Discrete:
    """Integers below the number of actions."""
    del params
    return spaces.Discrete(self._env.num_actions)

  def observation_space(self, params: Any = None) -> spaces.Box:
    """(rows, columns, channels), from 0 to the limit of the environment."""
    del params
    spec = self._env.observation_spec
    return spaces.Box(0, self._env.observation_limit, spec.shape, spec.dtype)
