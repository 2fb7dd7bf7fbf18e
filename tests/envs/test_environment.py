"""Tests rmc_jax/envs/environment.py: what all environments have in common."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import training
from rmc_jax.envs import AutoReset
from rmc_jax.envs import EpisodeStatistics
from rmc_jax.envs import FrameStack
from rmc_jax.envs import LevelBank
from rmc_jax.envs import make
from rmc_jax.training.checkpoint import Checkpointer


def wrapped(*arguments, **kwargs):
  """Returns a game in the wrappers that fit any game, and its parameters."""
  env, params = make(*arguments, **kwargs)
  return FrameStack(AutoReset(EpisodeStatistics(env)), 2), params


def with_bank(*arguments, **kwargs):
  """Returns a game in all wrappers and a bank of levels."""
  game, params = make(*arguments, **kwargs)
  bank = LevelBank(game)
  env = FrameStack(AutoReset(EpisodeStatistics(bank)), 2)
  return env, bank.draw(jax.random.key(9), params, 5)


ENVS = pytest.mark.parametrize(
  'build, name, others',
  [
    (make, 'mini_pacman', ('public', {'mode': 'hunt'})),
    (make, 'box_world', ('pycolab', {'max_steps': 9})),
    (wrapped, 'mini_pacman', ('public', {'mode': 'avoid'})),
    (with_bank, 'box_world', ('pycolab', {'max_solution': 2})),
  ],
)


@functools.partial(jax.jit, static_argnums=0)
def rollout(env, key, params):
  """Returns the last state, observations and rewards of three games."""

  def play(key):
    reset_key, step_key = jax.random.split(key)
    state = env.reset(reset_key, params)

    def advance(state, key):
      state, outcome = env.step(key, state, jnp.array(1), params)
      return state, (env.observe(state, params), outcome.reward)

    return jax.lax.scan(advance, state, jax.random.split(step_key, 7))

  return jax.vmap(play)(jax.random.split(key, 3))


@ENVS
def test_one_program_plays_with_keys_and_rules_of_any_kind(build, name, others):
  env, params = build(name)
  before = rollout._cache_size()
  for new_key in (jax.random.key, jax.random.PRNGKey):
    _, (pixels, rewards) = rollout(env, new_key(4), params)
    assert pixels.shape == (3, 7, *env.observation_spec.shape)
    assert pixels.dtype == env.observation_spec.dtype
    assert rewards.shape == (3, 7)
    preset, changes = others
    same, other_params = build(name, preset, **changes)
    assert hash(same) == hash(env)
    rollout(same, new_key(5), other_params)
  # One for each kind of key.
  assert rollout._cache_size() == before + 2


@ENVS
def test_a_game_alone_equals_one_of_many(build, name, others):
  env, params = build(name)
  step = jax.jit(env.step)
  keys = jax.random.split(jax.random.key(1), 4)
  states = jax.vmap(env.reset, (0, None))(keys, params)
  many = jax.vmap(env.step, (0, 0, 0, None))
  after = jax.jit(many)(keys, states, jnp.arange(4), params)
  for index in range(4):
    row = functools.partial(jax.tree.map, lambda leaf, index=index: leaf[index])
    alone = step(keys[index], row(states), jnp.array(index), params)
    jax.tree.map(np.testing.assert_array_equal, alone, row(after))


@ENVS
def test_states_keep_their_types_and_may_be_donated(build, name, others):
  env, params = build(name)
  step = jax.jit(env.step, donate_argnums=1)
  state = jax.jit(env.reset)(jax.random.key(0), params)
  for _ in range(3):
    before = state
    state, _ = step(jax.random.key(0), before, 1, params)
  assert step._cache_size() == 1
  assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))


@ENVS
def test_states_survive_a_checkpoint(build, name, others, tmp_path):
  env, params = build(name)
  keys = jax.random.split(jax.random.key(0), 4)
  games = jax.vmap(env.reset, (0, None))(keys, params)
  state = training.TrainState((), (), (), jnp.array(3), keys[0], games)
  with Checkpointer(tmp_path) as saver:
    saver.save(3, state)
    saver.wait()
    restored = saver.restore(jax.eval_shape(lambda: state)).state
  jax.tree.map(np.testing.assert_array_equal, restored.carry, games)


@pytest.mark.parametrize('name', ['mini_pacman', 'box_world'])
def test_observations_stay_below_their_limit(name):
  for view in ('viewport', 'full'):
    for pixels in ('rgb', 'symbolic'):
      env, params = make(name, view=view, pixels=pixels)
      _, (images, _) = rollout(env, jax.random.key(2), params)
      assert images.min() >= 0
      assert 0.5 * env.observation_limit < images.max()
      assert images.max() <= env.observation_limit


def test_unknown_views_are_refused():
  with pytest.raises(ValueError, match='view must be one of viewport, full'):
    make('box_world', view='whole')
  with pytest.raises(ValueError, match='pixels must be one of rgb, symbolic'):
    make('mini_pacman', pixels='grey')


@pytest.mark.parametrize('wrapper', [AutoReset, EpisodeStatistics, LevelBank])
def test_wrappers_in_the_wrong_order_are_refused(wrapper):
  env, params = make('mini_pacman')
  wrong = wrapper(AutoReset(env))
  if wrapper is LevelBank:
    params = wrong.draw(jax.random.key(0), params, 2)
  state = wrong.reset(jax.random.key(0), params)
  with pytest.raises(ValueError, match='must be inside AutoReset'):
    wrong.step(jax.random.key(0), state, 1, params)
