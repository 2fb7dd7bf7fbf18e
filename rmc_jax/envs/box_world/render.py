"""The room as text."""

import string

import numpy as np

from rmc_jax.envs.box_world.constants import GEM
from rmc_jax.envs.box_world.constants import SIZE
from rmc_jax.envs.box_world.types import State


def text(state: State) -> str:
  """Returns 14 rows of 14 characters, and a line about the key that is held.

  '#' is the border, '@' the player, '*' the gem; a key is a small letter, and
  its lock the same letter as a capital.
  """
  rows = np.full((SIZE, SIZE), ' ')
  rows[[0, -1]] = rows[:, [0, -1]] = '#'
  for index, (row, column) in enumerate(np.asarray(state.place)):
    if state.has_content[index]:
      rows[row, column] = _letter(int(state.content[index]))
    if state.has_lock[index]:
      rows[row, column + 1] = _letter(int(state.lock[index])).upper()
  rows[tuple(np.asarray(state.player))] = '@'
  key = _letter(int(state.held)) if state.held >= 0 else 'none'
  about = f'key {key}  step {state.step}'
  return '\n'.join([*map(''.join, rows.tolist()), about])


def _letter(colour: int) -> str:
  return '*' if colour == GEM else string.ascii_lowercase[colour]
