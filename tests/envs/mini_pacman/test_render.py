"""Tests rmc_jax/envs/mini_pacman/render.py."""

import numpy as np

from rmc_jax.envs.mini_pacman import MiniPacman
from rmc_jax.envs.mini_pacman.constants import MAZE
from tests.envs.mini_pacman.games import cell
from tests.envs.mini_pacman.games import ghosts_at
from tests.envs.mini_pacman.games import make_state


def test_text_shows_everything_in_its_cell():
  food = np.ones(138, bool)
  food[cell(1, 3)] = False
  state = make_state(
    (3, 9),
    food=food,
    pills=np.array([cell(3, 1), cell(11, 17)]),
    has_pill=np.array([True, False]),
    **ghosts_at((3, 5), (13, 1)),
  )
  expected = [list(row) for row in MAZE]
  for (row, column), letter in {
    (1, 3): ' ', (3, 1): 'o', (3, 5): 'G', (13, 1): 'G', (3, 9): 'P'
  }.items():  # fmt: skip
    expected[row][column] = letter
  *rows, about = MiniPacman().text(state).split('\n')
  assert rows == [''.join(row) for row in expected]
  assert about == 'level 1  power 0  step 0'


def test_ghosts_that_can_be_eaten_are_small():
  state = make_state(power=np.array(5), **ghosts_at((3, 5)))
  text = MiniPacman().text(state)
  assert 'g' in text.split('\n')[3]
  assert 'G' not in text
  assert 'power 5' in text
