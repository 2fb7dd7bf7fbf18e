"""The games for Gymnasium; importing this module registers their ids.

    import gymnasium
    import rmc_jax.envs.adapters.gymnasium

    env = gymnasium.make('rmc_jax/MiniPacman-v0', mode='hunt')
    envs = gymnasium.make_vec('rmc_jax/BoxWorld-v0', num_envs=64)

Keyword arguments are those of `rmc_jax.envs.make` and of the class.
"""

from collections.abc import Sequence
import functools
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.envs import registry
from rmc_jax.envs import render
from rmc_jax.envs.adapters import host
from rmc_jax.envs.environment import Environment
from rmc_jax.envs.environment import Game
from rmc_jax.envs.environment import select
from rmc_jax.envs.types import Outcome
from rmc_jax.envs.wrappers.level_bank import LevelBank
from rmc_jax.types import Array

RENDER_MODES = ('rgb_array', 'ansi')
IDS = {
  'rmc_jax/BoxWorld-v0': 'box_world',
  'rmc_jax/MiniPacman-v0': 'mini_pacman',
}


class Env(gymnasium.Env[np.ndarray, np.int64]):
  """One game, which the user resets.

  Truncation is part of the game, so it needs no `TimeLimit`.

  Attributes:
    game: the game with its state and parameters.
  """

  metadata = {'render_modes': list(RENDER_MODES), 'render_fps': 10}

  def __init__(self, env: Game, params: Any, render_mode: str | None = None):
    """Initialises the environment.

    Args:
      env: the game.
      params: its parameters.
      render_mode: 'rgb_array' or 'ansi' for `render`, or None.
    """
    if render_mode is not None:
      one_of('render_mode', render_mode, RENDER_MODES)
    self.render_mode = render_mode
    self.action_space = gymnasium.spaces.Discrete(env.num_actions)
    self.observation_space = _observation_space(env)
    self.game = host.HostGame(env, params, seed=0)
    self._env = env
    self._seeded = False

  def reset(
    self, *, seed: int | None = None, options: dict[str, Any] | None = None
  ) -> tuple[np.ndarray, dict[str, Any]]:
    """Starts an episode; without a seed, the next of the same sequence."""
    super().reset(seed=seed)
    if seed is None and not self._seeded:
      seed = _draw_seed(self.np_random)
    if seed is not None:
      self.game.seed(seed)
      self._seeded = True
    return self.game.reset(), {}

  def step(
    self, action: np.int64
  ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
    """Takes an action of `action_space`; raises ValueError for others."""
    if self.game.state is None:
      raise gymnasium.error.ResetNeeded('Call reset before step.')
    if not self.action_space.contains(np.asarray(action)):
      raise ValueError(
        f'action must be in {self.action_space}. Got: {action!r}.'
      )
    pixels, (reward, terminated, truncated, _) = self.game.step(action)
    return pixels, float(reward), bool(terminated), bool(truncated), {}

  # Gymnasium's return type is generic.
  def render(self) -> Any:
    """Returns the whole game as an image or as text, see `render_mode`."""
    game = self.game
    return _render(self._env, game.state, game.params, self.render_mode)


class VectorEnv(gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
  """Many games in one program, which reset by themselves.

  Each game equals that of an `Env`, without `num_levels`. A seed s gives the
  games the seeds s, s + 1, ...
  """

  def __init__(
    self,
    env: Game,
    params: Any,
    num_envs: int,
    *,
    render_mode: str | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    num_levels: int | None = None,
  ):
    """Initialises the environments.

    Args:
      env: the game.
      params: its parameters.
      num_envs: the number of games.
      render_mode: 'rgb_array' or 'ansi' for `render`, or None.
      autoreset_mode: Gymnasium's NEXT_STEP, in which the action after an
        episode's end is ignored, or SAME_STEP, in which the step that ends an
        episode returns the first observation of the next one and puts the last
        one into `infos['final_obs']`.
      num_levels: if given, episodes start from a `LevelBank` of so many
        levels, drawn in every `reset` with a seed. Makes BoxWorld faster.
    """
    if render_mode is not None:
      one_of('render_mode', render_mode, RENDER_MODES)
    positive_int('num_envs', num_envs)
    mode = AutoresetMode(autoreset_mode)
    allowed = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
    one_of('autoreset_mode', mode, allowed)
    if num_levels is not None:
      positive_int('num_levels', num_levels)
    self.metadata = {'autoreset_mode': mode}
    self.num_envs = num_envs
    self.single_action_space = gymnasium.spaces.Discrete(env.num_actions)
    self.single_observation_space = _observation_space(env)
    self.action_space = batch_space(self.single_action_space, num_envs)
    self.observation_space = batch_space(
      self.single_observation_space, num_envs
    )
    self.render_mode = render_mode
    self._game, self._rules = env, jax.device_put(params)
    # The same, or a bank of levels: see `_seed`.
    self._env: Environment = self._game
    self._params = self._rules
    self._same_step = mode == AutoresetMode.SAME_STEP
    self._num_levels = num_levels
    self._keys: Any = None
    self._states: Any = None
    self._ended = np.zeros(num_envs, bool)

  def reset(
    self,
    *,
    seed: int | list[int] | None = None,
    options: dict[str, Any] | None = None,
  ) -> tuple[np.ndarray, dict[str, Any]]:
    """Starts an episode of every game."""
    if isinstance(seed, int | np.integer):
      seed = int(seed)
      super().reset(seed=seed)
    if seed is None and self._keys is None:
      seed = _draw_seed(self.np_random)
    if seed is not None:
      self._seed(seed)
    self._keys, self._states, pixels = _reset_all(
      self._env, self._keys, self._params
    )
    self._ended = np.zeros(self.num_envs, bool)
    return np.array(pixels), {}

  def step(
    self, actions: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Takes an action in every game; raises ValueError for a wrong one."""
    if self._states is None:
      raise gymnasium.error.ResetNeeded('Call reset before step.')
    actions = np.asarray(actions)
    if not self.action_space.contains(actions):
      raise ValueError(
        f'actions must be in {self.action_space}. Got: {actions!r}.'
      )
    actions = actions.astype(np.int32)
    games = self._env, self._keys, self._states, actions, self._params
    last = None
    if self._same_step:
      *results, last = _step_then_reset(*games)
    else:
      results = _step_or_reset(*games, self._ended)
    self._keys, self._states, pixels, outcome = results
    terminated = np.array(outcome.terminated)
    truncated = np.array(outcome.truncated)
    self._ended = terminated | truncated
    infos: dict[str, Any] = {}
    if last is not None and self._ended.any():
      # An array of arrays, as in Gymnasium's own environments.
      infos['final_obs'] = np.full(self.num_envs, None)
      infos['_final_obs'] = self._ended.copy()
      infos |= {'final_info': {}, '_final_info': self._ended.copy()}
      for index in np.flatnonzero(self._ended):
        infos['final_obs'][index] = np.array(last[index])
    rewards = np.array(outcome.reward, np.float64)
    return np.array(pixels), rewards, terminated, truncated, infos

  # Gymnasium's return type is generic.
  def render(self) -> Any:
    """Returns a tuple of images or texts, one of each game."""
    return tuple(
      _render(
        self._game,
        jax.tree.map(lambda leaf, index=index: leaf[index], self._states),
        self._rules,
        self.render_mode,
      )
      for index in range(self.num_envs)
    )

  def _seed(self, seed: int | Sequence[int | None]) -> None:
    if isinstance(seed, int):
      seed = [seed + index for index in range(self.num_envs)]
    if len(seed) != self.num_envs:
      raise ValueError(
        f'seed must have {self.num_envs} elements. Got: {len(seed)}.'
      )
    self._keys = jnp.stack(
      [
        host.make_key(_draw_seed(self.np_random) if each is None else each)
        for each in seed
      ]
    )
    if self._num_levels is not None:
      bank = LevelBank(self._game)
      # Split never returns this key of the first game.
      key = jax.random.fold_in(self._keys[0], 2**31)
      self._env = bank
      self._params = bank.draw(key, self._rules, self._num_levels)


def make_env(name: str, render_mode: str | None = None, **kwargs: Any) -> Env:
  """Returns a game by its name in `rmc_jax.envs.make`."""
  return Env(*registry.make(name, **kwargs), render_mode)


def make_vector_env(
  name: str,
  num_envs: int,
  *,
  render_mode: str | None = None,
  autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
  num_levels: int | None = None,
  **kwargs: Any,
) -> VectorEnv:
  """Returns games by their name in `rmc_jax.envs.make`."""
  env, params = registry.make(name, **kwargs)
  return VectorEnv(
    env,
    params,
    num_envs,
    render_mode=render_mode,
    autoreset_mode=autoreset_mode,
    num_levels=num_levels,
  )


def _draw_seed(rng: np.random.Generator) -> int:
  return int(rng.integers(2**31))


def _render(env: Game, state: Any, params: Any, mode: str | None) -> Any:
  if mode == 'ansi':
    return env.text(jax.device_get(state))
  if mode == 'rgb_array':
    return render.image(env, state, params)
  gymnasium.logger.warn('render() needs a render_mode: see gymnasium.make.')
  return None


def _observation_space(env: Environment) -> gymnasium.spaces.Box:
  spec = env.observation_spec
  high = env.observation_limit
  return gymnasium.spaces.Box(0, high, spec.shape, np.dtype(spec.dtype))  # pyright: ignore[reportArgumentType]


@functools.partial(jax.jit, static_argnums=0)
def _reset_all(env: Environment, keys: Array, params: Any) -> tuple[Any, ...]:
  reset = functools.partial(host.reset, env)
  return jax.vmap(reset, (0, None))(keys, params)


@functools.partial(jax.jit, static_argnums=0)
def _step_or_reset(
  env: Environment,
  keys: Array,
  states: Any,
  actions: Array,
  params: Any,
  ended: Array,
) -> tuple[Any, ...]:
  """A step of all games, or the reset of those that have ended."""
  keys, subkeys = jax.vmap(jax.random.split, out_axes=1)(keys)
  stepped, outcome = _step_all(env, subkeys, states, actions, params)
  states = _start_where(env, ended, subkeys, stepped, params)
  outcome = _where(ended, jax.tree.map(jnp.zeros_like, outcome), outcome)
  pixels = jax.vmap(env.observe, (0, None))(states, params)
  return keys, states, pixels, outcome


@functools.partial(jax.jit, static_argnums=0)
def _step_then_reset(
  env: Environment, keys: Array, states: Any, actions: Array, params: Any
) -> tuple[Any, ...]:
  """A step of all games, then the reset of those that it ended."""
  observe = jax.vmap(env.observe, (0, None))
  keys, subkeys = jax.vmap(jax.random.split, out_axes=1)(keys)
  final, outcome = _step_all(env, subkeys, states, actions, params)
  ended = outcome.terminated | outcome.truncated
  next_keys, subkeys = jax.vmap(jax.random.split, out_axes=1)(keys)
  states = _start_where(env, ended, subkeys, final, params)
  keys = _where(ended, next_keys, keys)
  pixels = observe(states, params)
  last = jax.lax.cond(
    ended.any(), lambda: observe(final, params), lambda: pixels
  )
  return keys, states, pixels, outcome, last


def _step_all(
  env: Environment, keys: Array, states: Any, actions: Array, params: Any
) -> tuple[Any, Outcome]:
  return jax.vmap(env.step, (0, 0, 0, None))(keys, states, actions, params)


def _start_where(
  env: Environment, ended: Array, keys: Array, states: Any, params: Any
) -> Any:
  """Replaces the states of games that have ended; draws none if none has."""

  def start():
    fresh = jax.vmap(env.reset, (0, None))(keys, params)
    return _where(ended, fresh, states)

  return jax.lax.cond(ended.any(), start, lambda: states)


def _where(ended: Array, chosen: Any, other: Any) -> Any:
  """Selects games of pytrees with a leading axis."""
  return jax.vmap(select)(ended, chosen, other)


for _id, _name in IDS.items():
  gymnasium.register(
    _id,
    entry_point=f'{__name__}:make_env',
    vector_entry_point=f'{__name__}:make_vector_env',
    kwargs={'name': _name},
  )
