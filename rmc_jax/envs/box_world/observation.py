"""What the agent sees: pixels of the room, and the key that it holds."""

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.envs.box_world.constants import GEM
from rmc_jax.envs.box_world.constants import PALETTES
from rmc_jax.envs.box_world.constants import SIZE
from rmc_jax.envs.box_world.constants import VIEW_RADIUS
from rmc_jax.envs.box_world.types import Params
from rmc_jax.envs.box_world.types import State
from rmc_jax.types import Array

# Codes of 'symbolic': keys and locks have their colour, 0 .. 19.
_GEM, _PLAYER, _BACKGROUND, _BORDER = GEM, GEM + 1, GEM + 2, GEM + 3
NUM_CODES = _BORDER + 1
_NOTHING = -1

_ROOM = np.full((SIZE, SIZE), _BORDER, np.int32)
_ROOM[1:-1, 1:-1] = _BACKGROUND


def spec(view: str, pixels: str, coordinates: bool) -> jax.ShapeDtypeStruct:
  """Returns (rows, columns, channels) of the observation, and its type."""
  channels, dtype = (3, jnp.float32) if pixels == 'rgb' else (1, jnp.int32)
  size = SIZE if view == 'full' else 2 * VIEW_RADIUS + 1
  if view == 'viewport':
    channels *= 2  # The second half is the key.
  return jax.ShapeDtypeStruct((size, size, channels + 2 * coordinates), dtype)


def observe(
  state: State,
  params: Params,
  view: str,
  pixels: str,
  coordinates: bool = False,
) -> Array:
  """Returns an image of the room, [rows, columns, channels].

  Args:
    state: of the game.
    params: its rules, for the colours.
    view: 'viewport', with the player in the centre, border beyond the room, and
      further channels that are everywhere the colour of the held key, black
      without one. Or 'full', with that colour in the corner (0, 0).
    pixels: 'rgb', float32 in [0, 1]. Or 'symbolic', int32 codes below
      NUM_CODES: the colour of a key or lock, then gem, player, background, and
      border, which also stands for no key.
    coordinates: whether two more channels have the row and the column of each
      cell in the room, from 0 to 1 over all that a viewport can show.
  """
  held = jnp.where(state.held < 0, _BORDER, state.held)
  size = SIZE if view == 'full' else 2 * VIEW_RADIUS + 1
  corner = jnp.zeros(2, jnp.int32)
  if view == 'viewport':
    corner = state.player - VIEW_RADIUS
  codes = _codes(state, corner, size)
  if view == 'full':
    codes = codes.at[0, 0].set(held)
  parts = [_image(codes, params, pixels)]
  if view == 'viewport':
    parts.append(_image(jnp.broadcast_to(held, codes.shape), params, pixels))
  if coordinates:
    parts.append(_coordinates(corner, size))
  return jnp.concatenate(parts, axis=-1)


def _codes(state: State, corner: Array, size: int) -> Array:
  """Returns the codes [size, size] from the row and column of `corner`."""
  room = np.pad(_ROOM, VIEW_RADIUS, constant_values=_BORDER)
  codes = jax.lax.dynamic_slice(
    jnp.asarray(room), corner + VIEW_RADIUS, (size, size)
  )
  # Cells as numbers, so that a lock is its content's number plus one. Beyond
  # the room numbers repeat, but no item is in its first and last columns.
  cells = jnp.arange(size)[:, None] * SIZE + jnp.arange(size)[None]
  cells += corner[0] * SIZE + corner[1]
  offset = cells[..., None] - (state.place @ jnp.array([SIZE, 1]))[None, None]
  content = jnp.where(state.has_content, state.content, _NOTHING)
  lock = jnp.where(state.has_lock, state.lock, _NOTHING)
  items = jnp.where(
    offset == 0,
    content[None, None],
    jnp.where(offset == 1, lock[None, None], _NOTHING),
  ).max(-1)  # Items are apart, so there is one code at most.
  codes = jnp.where(items > _NOTHING, items, codes)
  player = state.player @ jnp.array([SIZE, 1])
  return jnp.where(cells == player, _PLAYER, codes)


def _coordinates(corner: Array, size: int) -> Array:
  """Returns [size, size, 2], 0 and 1 as far as a viewport reaches."""
  positions = corner[:, None] + jnp.arange(size)[None]  # rows, columns
  first, last = 1 - VIEW_RADIUS, SIZE - 2 + VIEW_RADIUS
  grid = jnp.meshgrid(*(positions - first) / (last - first), indexing='ij')
  return jnp.stack(grid, -1)


def _image(codes: Array, params: Params, pixels: str) -> Array:
  if pixels == 'symbolic':
    return codes[..., None]
  # The border's black also stands for no key.
  return jnp.asarray(PALETTES[params.variant], jnp.float32)[codes]
