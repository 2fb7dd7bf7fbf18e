"""The maze as text."""

import numpy as np

from rmc_jax.envs.mini_pacman import maze
from rmc_jax.envs.mini_pacman.types import State


def text(state: State) -> str:
  """Returns 15 rows of 19 characters, and a line about the level.

  '#' is a wall, '.' food, 'o' a pill, 'G' a ghost, 'g' one that can be eaten,
  'P' the player.
  """
  cells = np.asarray(maze.CELL_AT)
  food = np.append(np.asarray(state.food), False)
  rows = np.where(food[cells], '.', ' ')
  rows[cells == maze.NUM_CELLS] = '#'
  for places, present, letter in (
    (state.pills, state.has_pill, 'o'),
    (state.ghosts, state.alive, 'g' if state.power > 0 else 'G'),
    (np.array([state.player]), np.array([True]), 'P'),
  ):
    for place in np.asarray(places)[np.asarray(present)]:
      rows[cells == place] = letter
  about = f'level {state.level}  power {state.power}  step {state.step}'
  return '\n'.join([*map(''.join, rows.tolist()), about])
