"""How levels start: food everywhere, the rest at random cells."""

import jax
import jax.numpy as jnp

from rmc_jax.envs.mini_pacman import maze
from rmc_jax.envs.mini_pacman.constants import MAX_GHOSTS
from rmc_jax.envs.mini_pacman.constants import NUM_PILLS
from rmc_jax.envs.mini_pacman.types import Layout
from rmc_jax.envs.mini_pacman.types import State
from rmc_jax.types import Array


def draw_layout(key: Array) -> Layout:
  """Draws where things start: player and pills anywhere, ghosts far away.

  Pills may share a cell, with each other and with the player.
  """
  # Probabilities of cells have a relative error of at most 2e-5: these are
  # multiples of 2^-23.
  uniform = jax.random.uniform(key, (1 + NUM_PILLS + 2 * MAX_GHOSTS,))
  ends = 1, 1 + NUM_PILLS, 1 + NUM_PILLS + MAX_GHOSTS
  player, pills, ghosts, directions = jnp.split(uniform, ends)
  (player,) = _index(player, maze.NUM_CELLS)
  far = _index(ghosts, jnp.asarray(maze.NUM_FAR)[player])
  return Layout(
    player=player,
    pills=_index(pills, maze.NUM_CELLS),
    ghosts=jnp.asarray(maze.FAR_CELLS)[player, far],
    directions=_index(directions, 4),
  )


def start_level(level: Array, layout: Layout, step: Array) -> State:
  """Returns the state at the start of a level, `step` into the episode."""
  zero = jnp.zeros((), jnp.int32)
  return State(
    player=layout.player,
    ghosts=layout.ghosts,
    directions=layout.directions,
    alive=jnp.arange(MAX_GHOSTS) < num_ghosts(level),
    food=jnp.ones(maze.NUM_CELLS, bool),
    pills=layout.pills,
    has_pill=jnp.ones(NUM_PILLS, bool),
    power=zero,
    level=level,
    level_step=zero,
    step=step,
  )


def num_ghosts(level: Array) -> Array:
  """Returns 1, 1, 2, 2, 3, 3, ... up to MAX_GHOSTS for levels 1, 2, ..."""
  return jnp.minimum(1 + (level - 1) // 2, MAX_GHOSTS)


def _index(uniform: Array, size: int | Array) -> Array:
  """Returns integers in 0 .. size - 1 from uniform numbers in [0, 1)."""
  return jnp.floor(uniform * size).astype(jnp.int32)
