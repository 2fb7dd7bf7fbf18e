"""Tests rmc_jax/envs/registry.py."""

import pytest

from rmc_jax.envs import box_world
from rmc_jax.envs import make
from rmc_jax.envs import mini_pacman


def test_names_give_games_with_their_rules():
  env, params = make('mini_pacman', 'public', mode='rush', view='full')
  assert env == mini_pacman.MiniPacman('full', 'rgb')
  assert params == mini_pacman.make_params('public', 'rush')
  env, params = make('box_world', max_solution=2, pixels='symbolic')
  assert env == box_world.BoxWorld('viewport', 'symbolic')
  assert params == box_world.make_params(max_solution=2)


def test_only_far2025_has_a_fifth_action():
  assert make('box_world', 'pycolab')[0].num_actions == 4
  env, params = make('box_world', 'far2025')
  assert env.actions == ('up', 'down', 'left', 'right', 'stay')
  assert params.variant == 'far2025'


def test_wrong_arguments_are_refused():
  with pytest.raises(ValueError, match='name must be one of box_world, mini'):
    make('pong')
  with pytest.raises(ValueError, match='max_solution must be between'):
    make('box_world', max_solution=7)
  with pytest.raises(TypeError, match='mode'):
    make('box_world', mode='hunt')
