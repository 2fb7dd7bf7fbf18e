"""What the agent sees, as pixels: one for each cell of the maze."""

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.envs.mini_pacman import maze
from rmc_jax.envs.mini_pacman.constants import HEIGHT
from rmc_jax.envs.mini_pacman.constants import POWER
from rmc_jax.envs.mini_pacman.constants import VIEW_RADIUS
from rmc_jax.envs.mini_pacman.constants import WIDTH
from rmc_jax.envs.mini_pacman.types import Params
from rmc_jax.envs.mini_pacman.types import State
from rmc_jax.types import Array

PLANES = ('wall', 'food', 'player', 'ghost', 'edible ghost', 'pill')

_WHITE = 1.0, 1.0, 1.0
_FOOD, _PILL, _PLAYER = (0.0, 0.0, 1.0), (0.0, 1.0, 1.0), (0.0, 1.0, 0.0)
_BAR = 0.99, 0.49, 0.59
# The maze with a border of walls as wide as the view reaches beyond it.
_BORDERED = np.pad(maze.CELL_AT, VIEW_RADIUS, constant_values=maze.NUM_CELLS)


def spec(view: str, pixels: str) -> jax.ShapeDtypeStruct:
  """Returns (rows, columns, channels) of the observation, and its type."""
  size = 2 * VIEW_RADIUS + 1
  rows, columns = (size, size) if view == 'viewport' else (HEIGHT, WIDTH)
  channels = 3 if pixels == 'rgb' else len(PLANES)
  return jax.ShapeDtypeStruct((rows, columns, channels), jnp.float32)


def observe(state: State, params: Params, view: str, pixels: str) -> Array:
  """Returns an image of the game, [rows, columns, channels] in [0, 1].

  Args:
    state: of the game.
    params: its rules, for the colours.
    view: 'viewport', whose centre is the player, with walls beyond the maze, or
      'full'.
    pixels: 'rgb', in which a player hides a ghost, a ghost a pill, and a pill
      food. Or 'symbolic', the planes of PLANES; with x = power / POWER, a ghost
      has 1 - x in 'ghost' and x in 'edible ghost'.
  """
  if view == 'full':
    top = left = 0
    cells = jnp.asarray(maze.CELL_AT)
  else:
    size = 2 * VIEW_RADIUS + 1
    row, column = jnp.asarray(maze.CELLS)[state.player]
    top, left = row - VIEW_RADIUS, column - VIEW_RADIUS
    cells = jax.lax.dynamic_slice(
      jnp.asarray(_BORDERED), (row, column), (size, size)
    )
  things = _find_things(state, cells)
  if pixels == 'symbolic':
    return _planes(state, things)
  rows = top + jnp.arange(cells.shape[0])[:, None]
  columns = left + jnp.arange(cells.shape[1])[None]
  bar = jnp.minimum(state.power, WIDTH)
  lit = (rows == HEIGHT - 1) & (columns >= 0) & (columns < bar)
  return _colours(state, params, things, lit & params.power_bar)


def _find_things(state: State, cells: Array) -> dict[str, Array]:
  """Returns [rows, columns] masks of what is in the cells of the view."""
  # A wall, cell NUM_CELLS, has no food.
  food = jnp.concatenate([state.food, jnp.zeros(1, bool)])[cells]

  def has(places, present):
    return (cells[..., None] == jnp.where(present, places, -1)).any(-1)

  return {
    'wall': cells == maze.NUM_CELLS,
    'food': food,
    'player': cells == state.player,
    'ghost': has(state.ghosts[None, None], state.alive[None, None]),
    'pill': has(state.pills[None, None], state.has_pill[None, None]),
  }


def _planes(state: State, things: dict[str, Array]) -> Array:
  power = state.power / POWER
  ghosts = things['ghost']
  planes = {
    **things,
    'ghost': ghosts * (1 - power),
    'edible ghost': ghosts * power,
  }
  return jnp.stack(
    [planes[name].astype(jnp.float32) for name in PLANES], axis=-1
  )


def _colours(
  state: State, params: Params, things: dict[str, Array], lit: Array
) -> Array:
  edible = jnp.where(params.fading, state.power / POWER, 1.0)
  ghost = jnp.stack([1.0, jnp.where(state.power > 0, edible, 0.0), 0.0])
  image = jnp.broadcast_to(jnp.zeros(3), (*lit.shape, 3))
  for mask, colour in (  # Later ones hide earlier ones.
    (things['wall'], _WHITE),
    (lit, _BAR),
    (things['food'], _FOOD),
    (things['pill'], _PILL),
    (things['ghost'], ghost),
    (things['player'], _PLAYER),
  ):
    image = jnp.where(mask[..., None], jnp.asarray(colour)[None, None], image)
  return image
