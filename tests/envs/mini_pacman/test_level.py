"""Tests rmc_jax/envs/mini_pacman/level.py."""

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.envs.mini_pacman import level as level_lib
from rmc_jax.envs.mini_pacman import maze
from tests.envs.mini_pacman import games
from tests.envs.mini_pacman.games import cell
from tests.reference import mini_pacman as reference


def test_levels_add_a_ghost_every_second_time():
  counts = [int(level_lib.num_ghosts(jnp.array(k))) for k in range(1, 20)]
  assert counts == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 8, 8, 8]


def test_levels_start_everywhere_and_ghosts_far_away():
  num = 20_000
  keys = jax.random.split(jax.random.key(3), num)
  layouts = jax.vmap(level_lib.draw_layout)(keys)
  for cells in (layouts.player, layouts.pills[:, 0], layouts.pills[:, 1]):
    counts = np.bincount(cells, minlength=138)
    # Five standard deviations, of 138 counts.
    assert abs(counts - num / 138).max() < 5 * np.sqrt(num / 138)
  places = maze.CELLS[np.asarray(layouts.ghosts)]  # [num, G, 2]
  offset = places - maze.CELLS[np.asarray(layouts.player)][:, None]
  is_near = ((offset >= -5) & (offset <= 4)).all(-1)
  assert not is_near.any()
  for player in (cell(1, 1), cell(7, 6), cell(13, 17)):
    found = set(np.unique(layouts.ghosts[layouts.player == player]).tolist())
    expected = {
      index
      for index, place in enumerate(games.PLACES)
      if reference.may_start(place, games.PLACES[player])
    }
    assert found == expected
  counts = np.bincount(layouts.directions.reshape(-1), minlength=4)
  assert abs(counts / counts.sum() - 0.25).max() < 0.01
