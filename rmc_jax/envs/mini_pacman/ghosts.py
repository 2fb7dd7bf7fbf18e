"""The policy of the ghosts: towards the player, or away from one with power."""

import jax.numpy as jnp

from rmc_jax.envs.mini_pacman import maze
from rmc_jax.types import Array


def turn(
  cell: Array,
  direction: Array,
  player: Array,
  powered: Array,
  random: Array,
  choice: Array,
) -> Array:
  """Returns the direction of each ghost's next move, [G].

  In a corridor or bend a ghost keeps its direction while that is open, else it
  takes the way that does not lead back; the maze has no dead ends. At a
  junction, with the way back left out, it takes the direction with the largest
  component towards the player, or the smallest if the player is powered. Ties
  go to the first of right, up, left, down. At the player it does not turn.

  Args:
    cell: [G].
    direction: [G] of the last move.
    player: [] its cell.
    powered: [] whether ghosts flee.
    random: [G] whether the ghost takes a random exit at a junction, except the
      one back. Ignored while the player is powered.
    choice: [G] in [0, 1), which one.
  """
  exits = jnp.asarray(maze.EXITS)[cell]  # [G, 4]
  is_back = jnp.arange(4)[None] == (direction[:, None] + 2) % 4
  onward = exits & ~is_back  # [G, 4]
  at_junction = jnp.where(
    random & ~powered,
    _choose(onward, choice),
    _chase(onward, cell, player, powered),
  )
  elsewhere = _go_on(exits, onward, direction)
  turned = jnp.where(exits.sum(-1) > 2, at_junction, elsewhere)
  return jnp.where(cell == player, direction, turned)


def _go_on(exits: Array, onward: Array, direction: Array) -> Array:
  """Keeps the direction where it is open, else takes the first way onward."""
  is_open = jnp.take_along_axis(exits, direction[:, None], axis=1)[:, 0]
  return jnp.where(is_open, direction, onward.argmax(-1))


def _chase(onward: Array, cell: Array, player: Array, powered: Array) -> Array:
  cells = jnp.asarray(maze.CELLS)
  rows, columns = (cells[player][None] - cells[cell]).T  # [G] to the player
  towards = jnp.stack([columns, -rows, -columns, rows], axis=-1)  # [G, 4]
  score = jnp.where(powered, -towards, towards)
  lowest = jnp.iinfo(score.dtype).min
  return jnp.where(onward, score, lowest).argmax(-1)


def _choose(onward: Array, choice: Array) -> Array:
  """Returns one of the ways onward, all equally likely."""
  rank = jnp.floor(choice * onward.sum(-1)).astype(jnp.int32)  # [G]
  return (onward.cumsum(-1) > rank[:, None]).argmax(-1)
