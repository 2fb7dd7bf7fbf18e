"""Tests rmc_jax/envs/mini_pacman/ghosts.py against the public code."""

import jax.numpy as jnp
import pytest

from rmc_jax.envs.mini_pacman import ghosts
from rmc_jax.envs.mini_pacman import maze
from tests.envs.mini_pacman.games import cell
from tests.reference import mini_pacman as reference


# Ghost (row, column) and direction, player and its power; the next place and
# direction.
@pytest.mark.parametrize(
  'ghost, direction, player, power, place, turned',
  [
    ((3, 3), 'right', (11, 17), 0, (3, 4), 'right'),
    ((3, 3), 'right', (11, 17), 5, (2, 3), 'up'),
    ((3, 3), 'up', (11, 3), 0, (3, 4), 'right'),
    ((3, 3), 'down', (11, 3), 5, (3, 4), 'right'),
    ((1, 1), 'up', (9, 9), 0, (1, 2), 'right'),
    ((1, 1), 'left', (9, 9), 5, (2, 1), 'down'),
    ((3, 9), 'right', (3, 1), 0, (3, 10), 'right'),
    ((7, 6), 'down', (1, 1), 0, (7, 5), 'left'),
    ((7, 6), 'up', (1, 1), 0, (6, 6), 'up'),
    ((5, 5), 'right', (1, 9), 0, (5, 6), 'right'),
    ((9, 5), 'right', (13, 9), 0, (9, 6), 'right'),
    ((11, 5), 'left', (13, 5), 0, (12, 5), 'down'),
    ((3, 5), 'left', (3, 5), 0, (3, 4), 'left'),
    ((3, 1), 'left', (3, 17), 0, (2, 1), 'up'),
  ],
)
def test_ghosts_turn_as_in_the_public_code(
  ghost, direction, player, power, place, turned
):
  after = ghosts.turn(
    jnp.array([cell(*ghost)]),
    jnp.array([reference.ORDER.index(direction)]),
    jnp.array(cell(*player)),
    jnp.array(power > 0),
    jnp.array([False]),
    jnp.array([0.0]),
  )
  assert reference.ORDER[after[0]] == turned
  assert maze.NEXT_CELL[cell(*ghost), after[0] + 1] == cell(*place)
