"""Tests rmc_jax/envs/adapters/host.py."""

import jax
import numpy as np
import pytest

from rmc_jax.envs import make
from rmc_jax.envs.adapters import host
from rmc_jax.envs.adapters.host import HostGame


def test_a_game_equals_the_pure_functions():
  env, params = make('mini_pacman', max_steps=9)
  game = HostGame(env, params, seed=3)
  key, reset_key = jax.random.split(jax.random.key(3))
  state = env.reset(reset_key, params)
  np.testing.assert_array_equal(game.reset(), env.observe(state, params))
  for action in (1, 2, 3):
    key, step_key = jax.random.split(key)
    state, expected = env.step(step_key, state, action, params)
    pixels, outcome = game.step(action)
    np.testing.assert_array_equal(pixels, env.observe(state, params))
    assert outcome == expected
    jax.tree.map(np.testing.assert_array_equal, game.state, state)


def test_a_seed_repeats_the_levels_and_episodes_differ():
  game = HostGame(*make('box_world', view='full'), seed=3)
  first, second = game.reset(), game.reset()
  assert (first != second).any()
  game.seed(3)
  np.testing.assert_array_equal(game.reset(), first)
  np.testing.assert_array_equal(game.reset(), second)


def test_observations_belong_to_the_caller():
  game = HostGame(*make('box_world'), seed=0)
  pixels = game.reset()
  pixels[:] = 0.5
  assert (game.step(1)[0] != 0.5).any()


def test_actions_of_any_integer_type_share_one_program():
  game = HostGame(*make('box_world', max_steps=77), seed=0)
  game.reset()
  game.step(1)
  before = host._step._cache_size()
  for action in (2, np.int64(2), np.uint8(2), jax.numpy.int32(2)):
    game.step(action)
  assert host._step._cache_size() == before


def test_seeds_out_of_range_are_refused():
  game = HostGame(*make('box_world'), seed=2**32 - 1)
  with pytest.raises(ValueError, match=r'seed must be below 2\*\*32. Got: 42'):
    game.seed(2**32)
  with pytest.raises(ValueError, match='seed must be at least 0. Got: -1'):
    game.seed(-1)
