"""Tests rmc_jax/envs/adapters/host.py."""

import jax
import numpy as np

from rmc_jax.envs import make
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
    np.testing.assert_allclose(outcome.reward, expected.reward, rtol=1e-6)
    assert outcome.terminated == expected.terminated
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
