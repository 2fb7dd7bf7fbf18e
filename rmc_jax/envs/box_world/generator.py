"""Levels of BoxWorld: a chain of boxes to the gem, and boxes that lead astray.

Follows the generator of pycolab's box_world, with two differences. An item goes
to the legal place that comes first in a random order of all places, which has
the same law as drawing places until one is legal. A layout that does not fit is
drawn again for the same boxes, where pycolab draws other boxes too.
"""

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.envs.box_world.constants import FIRST_COLUMN
from rmc_jax.envs.box_world.constants import FIRST_ROW
from rmc_jax.envs.box_world.constants import GEM
from rmc_jax.envs.box_world.constants import LAST_COLUMN
from rmc_jax.envs.box_world.constants import LAST_ROW
from rmc_jax.envs.box_world.constants import MAX_SOLUTION
from rmc_jax.envs.box_world.constants import NO_KEY
from rmc_jax.envs.box_world.constants import NUM_ATTEMPTS
from rmc_jax.envs.box_world.constants import NUM_COLOURS
from rmc_jax.envs.box_world.constants import NUM_ITEMS
from rmc_jax.envs.box_world.constants import START_COLUMNS
from rmc_jax.envs.box_world.constants import START_ROWS
from rmc_jax.envs.box_world.types import Params
from rmc_jax.envs.box_world.types import State
from rmc_jax.types import Array

# [P, 2] the places of contents.
PLACES = np.array(
  [
    (row, column)
    for row in range(FIRST_ROW, LAST_ROW + 1)
    for column in range(FIRST_COLUMN, LAST_COLUMN + 1)
  ],
  np.int32,
)
_ROWS, _COLUMNS = np.moveaxis(PLACES[None] - PLACES[:, None], -1, 0)
# [2, P, P] whether a box at the second place is apart from the loose key (0) or
# a box (1) at the first, diagonals included. A box is two cells wide.
FIT = np.stack(
  [
    (abs(_ROWS) > 1) | (_COLUMNS < -2) | (_COLUMNS > 1),
    (abs(_ROWS) > 1) | (abs(_COLUMNS) > 2),
  ]
)
# [S, 2] where the player may start.
STARTS = np.array([(r, c) for r in START_ROWS for c in START_COLUMNS], np.int32)


def draw_level(key: Array, params: Params) -> State:
  """Draws a level; consumes the key."""
  length_key, colour_key, place_key, start_key = jax.random.split(key, 4)
  solution_key, distractor_key = jax.random.split(length_key)
  num_solution = jax.random.randint(
    solution_key, (), params.min_solution, params.max_solution + 1
  )
  num_distractors = jax.random.randint(
    distractor_key, (), params.min_distractors, params.max_distractors + 1
  )
  item = jnp.arange(NUM_ITEMS)
  is_distractor = item > MAX_SOLUTION
  exists = jnp.where(
    is_distractor,
    item - MAX_SOLUTION <= num_distractors,
    item <= num_solution,
  )
  lock, content = draw_colours(colour_key, num_solution)
  place, fits = draw_places(place_key, exists)
  exists &= fits
  return State(
    player=draw_start(start_key, place, exists),
    held=jnp.array(NO_KEY, jnp.int32),
    place=place,
    lock=lock,
    content=content,
    has_lock=exists & (item > 0),
    has_content=exists,
    is_distractor=is_distractor,
    solved=jnp.array(False),
    step=jnp.zeros((), jnp.int32),
  )


def draw_colours(key: Array, num_solution: Array) -> tuple[Array, Array]:
  """Draws the colours of locks and contents, [I] each.

  With colours numbered in the order of use, 0, 1, ..., the loose key has colour
  0, and solution box i, from 1, has lock i - 1 and key i, or the gem if it is
  the last. A distractor has the lock of any solution box and a key that opens
  none, of the colours up to the second last, as in pycolab.
  """
  lock_key, content_key, order_key = jax.random.split(key, 3)
  item = jnp.arange(NUM_ITEMS)
  is_distractor = item > MAX_SOLUTION
  shape = (NUM_ITEMS,)
  lock = jnp.where(
    is_distractor,
    jax.random.randint(lock_key, shape, 0, num_solution),
    item - 1,
  )
  astray = jax.random.randint(content_key, shape, num_solution, NUM_COLOURS - 1)
  content = jnp.where(is_distractor, astray, item)
  shown = jax.random.permutation(order_key, NUM_COLOURS).astype(jnp.int32)
  is_last = ~is_distractor & (item == num_solution)
  return shown[lock], jnp.where(is_last, GEM, shown[content])


def draw_places(key: Array, exists: Array) -> tuple[Array, Array]:
  """Draws a place for each item, [I, 2], and whether it was found, [I]."""
  keys = jax.random.split(key, NUM_ATTEMPTS)
  places, found = jax.vmap(attempt_places, (0, None))(keys, exists)
  best = (found | ~exists[None]).sum(-1).argmax()  # The first complete one.
  return places[best], found[best]


def attempt_places(key: Array, exists: Array) -> tuple[Array, Array]:
  """Puts one item after another, where it fits to those before."""
  order = jax.random.uniform(key, (len(PLACES),))

  def put(legal, item):
    is_box, exists = item
    chosen = jnp.where(legal, order, -1.0).argmax()
    found = legal[chosen] & exists
    legal &= jnp.asarray(FIT)[is_box, chosen] | ~exists
    return legal, (chosen, found)

  legal = jnp.ones(len(PLACES), bool)
  is_box = jnp.minimum(jnp.arange(NUM_ITEMS), 1)
  chosen, found = jax.lax.scan(put, legal, (is_box, exists))[1]
  return jnp.asarray(PLACES)[chosen], found


def draw_start(key: Array, place: Array, exists: Array) -> Array:
  """Draws the player's cell [2], uniform over those without an item."""
  starts = jnp.asarray(STARTS)
  offset = starts[:, None] - place[None]  # [S, I, 2]
  # The loose key has no lock beside it.
  width = jnp.where(jnp.arange(NUM_ITEMS) == 0, 0, 1)
  on_item = (
    (offset[..., 0] == 0)
    & (offset[..., 1] >= 0)
    & (offset[..., 1] <= width[None])
    & exists[None]
  )
  order = jax.random.uniform(key, (len(STARTS),))
  return starts[jnp.where(on_item.any(-1), -1.0, order).argmax()]
