"""What the agent sees: pixels of the room, and the key that it holds."""

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.envs.box_world.constants import BACKGROUND
from rmc_jax.envs.box_world.constants import BORDER
from rmc_jax.envs.box_world.constants import GEM
from rmc_jax.envs.box_world.constants import KEYS
from rmc_jax.envs.box_world.constants import PLAYER
from rmc_jax.envs.box_world.constants import SIZE
from rmc_jax.envs.box_world.constants import VIEW_RADIUS
from rmc_jax.envs.box_world.constants import WHITE
from rmc_jax.envs.box_world.types import State
from rmc_jax.types import Array

VIEWS = ('viewport', 'full')
PIXELS = ('rgb', 'symbolic')

# Codes of 'symbolic': keys and locks have their colour, 0 .. 19.
_GEM, _PLAYER, _BACKGROUND, _BORDER = GEM, GEM + 1, GEM + 2, GEM + 3
NUM_CODES = _BORDER + 1
# [NUM_CODES, 3]; black for a key that is not held too.
_COLOURS = np.array([*KEYS, WHITE, PLAYER, BACKGROUND, BORDER], np.float32)

_ROOM = np.full((SIZE, SIZE), _BORDER, np.int32)
_ROOM[1:-1, 1:-1] = _BACKGROUND


def shape(view: str, pixels: str) -> tuple[int, int, int]:
  """Returns (rows, columns, channels) of the observation."""
  channels = 3 if pixels == 'rgb' else 1
  if view == 'full':
    return SIZE, SIZE, channels
  size = 2 * VIEW_RADIUS + 1
  return size, size, 2 * channels  # The second half is the key.


def observe(state: State, view: str, pixels: str) -> Array:
  """Returns an image of the room, [rows, columns, channels].

  Args:
    state: of the game.
    view: 'viewport', with the player in the centre, border beyond the room, and
      further channels that are everywhere the colour of the held key, black
      without one. Or 'full', with that colour in the corner (0, 0).
    pixels: 'rgb', float32 in [0, 1]. Or 'symbolic', int32 codes below
      NUM_CODES: the colour of a key or lock, then gem, player, background, and
      border, which also stands for no key.
  """
  held = jnp.where(state.held < 0, _BORDER, state.held)
  size = SIZE if view == 'full' else 2 * VIEW_RADIUS + 1
  corner = jnp.zeros(2, jnp.int32)
  if view == 'viewport':
    corner = state.player - VIEW_RADIUS
  codes = _codes(state, corner, size)
  if view == 'full':
    codes = codes.at[0, 0].set(held)
  image = _image(codes, pixels)
  if view == 'full':
    return image
  key = _image(jnp.broadcast_to(held, codes.shape), pixels)
  return jnp.concatenate([image, key], axis=-1)


def _codes(state: State, corner: Array, size: int) -> Array:
  """Returns the codes [size, size] from the row and column of `corner`."""
  room = np.pad(_ROOM, VIEW_RADIUS, constant_values=_BORDER)
  codes = jax.lax.dynamic_slice(
    jnp.asarray(room), corner + VIEW_RADIUS, (size, size)
  )
  cells = jnp.stack(jnp.meshgrid(*[jnp.arange(size)] * 2, indexing='ij'), -1)
  cells += corner[None, None]  # [size, size, 2]
  right = jnp.array([[0, 1]])
  for place, code, present in (
    (state.place, state.content, state.has_content),
    (state.place + right, state.lock, state.has_lock),
    (state.player[None], jnp.array([_PLAYER]), jnp.array([True])),
  ):
    on = (cells[:, :, None] == place[None, None]).all(-1)  # [size, size, I]
    on &= present[None, None]
    # Items are apart, so there is one code at most.
    found = jnp.where(on, code[None, None], 0).sum(-1)
    codes = jnp.where(on.any(-1), found, codes)
  return codes


def _image(codes: Array, pixels: str) -> Array:
  if pixels == 'symbolic':
    return codes[..., None]
  return jnp.asarray(_COLOURS)[codes]
