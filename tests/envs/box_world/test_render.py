"""Tests rmc_jax/envs/box_world/render.py against the reference."""

import string

import jax

from rmc_jax.envs.box_world import BoxWorld
from rmc_jax.envs.box_world import make_params
from tests.envs.box_world import games
from tests.reference import box_world as reference

NAMES = {'gem': '*', 'player': '@', 'border': '#', 'background': ' '}


def test_text_shows_what_the_reference_shows():
  params = make_params(max_solution=2)
  states, *_ = games.play(jax.random.key(1), params, 20, 100)
  assert (states.held[-1] >= 0).any()
  for game in range(20):
    state = games.row(states, -1, game)
    level = games.to_reference(state)
    *rows, about = BoxWorld().text(state).split('\n')
    for row, names in enumerate(reference.render(level)):
      for column, name in enumerate(names):
        letter = NAMES.get(name) or string.ascii_lowercase[name]
        if (row, column) in level['locks'] and name != 'player':
          letter = letter.upper()
        assert rows[row][column] == letter
    held = level['held']
    key = 'none' if held is None else string.ascii_lowercase[held]
    assert about == f'key {key}  step 100'
