"""Tests rmc_jax/envs/mini_pacman/maze.py against the published numbers."""

import collections

import numpy as np

from rmc_jax.envs.mini_pacman import maze
from tests.reference import mini_pacman as reference


def test_maze_is_the_published_one():
  assert maze.NUM_CELLS == 138
  assert collections.Counter(maze.EXITS.sum(1).tolist()) == {
    2: 114,
    3: 16,
    4: 8,
  }
  junctions = {tuple(c) for c in maze.CELLS[maze.EXITS.sum(1) == 4].tolist()}
  assert junctions == {(r, c) for r in (3, 11) for c in (3, 5, 13, 15)}
  junctions = {tuple(c) for c in maze.CELLS[maze.EXITS.sum(1) == 3].tolist()}
  rows = {3: (1, 17), 5: (5, 6, 12, 13), 7: (1, 6, 12, 17)}
  rows |= {9: rows[5], 11: rows[3]}
  assert junctions == {(r, c) for r, columns in rows.items() for c in columns}
  np.testing.assert_array_equal(maze.CELL_AT < 138, (maze.CELL_AT < 138)[::-1])
  np.testing.assert_array_equal(
    maze.CELL_AT < 138, (maze.CELL_AT < 138)[:, ::-1]
  )
  assert [tuple(c) for c in maze.CELLS.tolist()] == reference.CORRIDORS
