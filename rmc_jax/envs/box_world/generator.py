"""Levels of BoxWorld: a chain of boxes to the gem, and distractors.

The variant 'pycolab' follows the generator of pycolab's box_world, with two
differences. An item goes to the legal place that comes first in a random order
of all places, which has the same distribution as drawing until one is legal. A
layout that does not fit is drawn again for the same boxes, where pycolab draws
other boxes too.

The variant 'far2025' has the distribution of train-learned-planner's
boxworld_gen.py: boxes are apart from each other along their row only, so that
some levels cannot be solved.
"""

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.envs.box_world.constants import GEM
from rmc_jax.envs.box_world.constants import MAX_DISTRACTORS
from rmc_jax.envs.box_world.constants import MAX_SOLUTION
from rmc_jax.envs.box_world.constants import NO_KEY
from rmc_jax.envs.box_world.constants import NUM_ATTEMPTS
from rmc_jax.envs.box_world.constants import NUM_COLOURS
from rmc_jax.envs.box_world.types import Params
from rmc_jax.envs.box_world.types import State
from rmc_jax.types import Array


def _grid(rows: range, columns: range) -> np.ndarray:
  return np.array([(r, c) for r in rows for c in columns], np.int32)


# [P, 2] where the content of a box may be; its lock is to the right.
PLACES = {
  'pycolab': _grid(range(2, 12), range(2, 10)),
  # The original never uses the first cell.
  'far2025': _grid(range(1, 13), range(1, 12))[1:],
}
# [S, 2] where the player may start.
STARTS = _grid(range(2, 12), range(1, 12))


def _fit(places: np.ndarray, variant: str) -> np.ndarray:
  """Returns [2, P, P] whether a box at the second place fits to the first.

  At the first is the loose key (0) or a box (1), which is two cells wide.
  """
  rows, columns = np.moveaxis(places[None] - places[:, None], -1, 0)
  if variant == 'far2025':
    apart = (rows != 0) | (abs(columns) > 2)
    return np.stack([apart, apart])
  # Not even diagonally adjacent.
  apart = abs(rows) > 1
  return np.stack(
    [apart | (columns < -2) | (columns > 1), apart | (abs(columns) > 2)]
  )


FIT = {variant: _fit(places, variant) for variant, places in PLACES.items()}


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
  item = jnp.arange(1 + MAX_SOLUTION + params.distractor_boxes)  # [I]
  is_distractor = item > MAX_SOLUTION
  exists = jnp.where(
    is_distractor,
    item - MAX_SOLUTION <= num_distractors * params.branch_length,
    item <= num_solution,
  )
  lock, content = draw_colours(colour_key, num_solution, params)
  if params.variant == 'far2025':
    player, place = draw_far2025_layout(place_key, exists)
  else:
    place, fits = draw_places(place_key, exists)
    exists &= fits
    player = draw_start(start_key, place, exists)
  return State(
    player=player,
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


def draw_colours(
  key: Array, num_solution: Array, params: Params
) -> tuple[Array, Array]:
  """Draws the colours of locks and contents, [I] each.

  With colours numbered in the order of use, 0, 1, ..., the loose key has colour
  0, and solution box i, from 1, has lock i - 1 and key i, or the gem if it is
  the last. A branch of distractors starts with the lock of any solution box.
  Its keys open no solution box.
  """
  root_key, branch_key, order_key = jax.random.split(key, 3)
  num_boxes = params.distractor_boxes
  roots = jax.random.randint(root_key, (num_boxes,), 0, num_solution)
  draw = (
    draw_far2025_branches
    if params.variant == 'far2025'
    else draw_pycolab_branches
  )
  branch_locks, keys = draw(branch_key, num_solution, params)
  starts = jnp.arange(num_boxes) % params.branch_length == 0
  solution = jnp.arange(1 + MAX_SOLUTION)
  lock = jnp.concatenate([solution - 1, jnp.where(starts, roots, branch_locks)])
  content = jnp.concatenate([solution, keys])
  num_colours = NUM_COLOURS[params.variant]
  colour = jax.random.permutation(order_key, num_colours).astype(jnp.int32)
  is_last = jnp.arange(len(content)) == num_solution
  return colour[lock], jnp.where(is_last, GEM, colour[content])


def draw_pycolab_branches(
  key: Array, num_solution: Array, params: Params
) -> tuple[Array, Array]:
  """Draws the keys of distractors and the locks that they would open, [boxes].

  A key has any colour but those of the solution, that of its own lock and, as
  in pycolab, the last.
  """
  box = jnp.arange(params.distractor_boxes)
  num_free = NUM_COLOURS[params.variant] - 1 - num_solution
  # An offset of 1 or more from the key before, which is the lock. The sum stays
  # uniform where a branch starts, with an offset that may be 0.
  starts = box % params.branch_length == 0
  offset = jax.random.randint(key, box.shape, jnp.where(starts, 0, 1), num_free)
  free = jnp.cumsum(offset) % num_free
  return num_solution + jnp.roll(free, 1), num_solution + free


def draw_far2025_branches(
  key: Array, num_solution: Array, params: Params
) -> tuple[Array, Array]:
  """As `draw_pycolab_branches`, with the colours of train-learned-planner.

  The keys of a branch differ. Box j, from 1, shows the key of box j - 2, as in
  the original code, which does not matter: opening the first box of a branch
  ends the episode.
  """
  branch, position = jnp.divmod(
    jnp.arange(params.distractor_boxes), params.branch_length
  )
  colour = jnp.arange(NUM_COLOURS[params.variant])
  shape = (MAX_DISTRACTORS, len(colour))
  order = jax.random.uniform(key, shape) + (colour < num_solution)[None]
  # [branches, colours] in a random order, those of the solution at the end
  drawn = order.argsort(-1)
  key_position = jnp.where(
    position == 0, 0, (position - 2) % params.branch_length
  )
  return drawn[branch, position - 1], drawn[branch, key_position]


def draw_places(key: Array, exists: Array) -> tuple[Array, Array]:
  """Draws a place for each item, [I, 2], and whether it was found, [I]."""
  keys = jax.random.split(key, NUM_ATTEMPTS)
  places, found = jax.vmap(attempt_places, (0, None))(keys, exists)
  best = (found | ~exists[None]).sum(-1).argmax()  # The first complete one.
  return places[best], found[best]


def attempt_places(key: Array, exists: Array) -> tuple[Array, Array]:
  """Puts one item after another, where it fits to those before."""
  order = jax.random.uniform(key, (len(PLACES['pycolab']),))
  is_box = jnp.arange(len(exists)) > 0
  chosen, found, _ = _put(order, exists, is_box, 'pycolab')
  return jnp.asarray(PLACES['pycolab'])[chosen], found


def draw_far2025_layout(key: Array, exists: Array) -> tuple[Array, Array]:
  """Draws the player's cell, [2], and a place for each item, [I, 2].

  First the boxes, then the player and the loose key, in that order.
  """
  places = jnp.asarray(PLACES['far2025'])
  order = jax.random.uniform(key, (len(places),))
  boxes, _, legal = _put(
    order, exists[1:], jnp.ones_like(exists[1:]), 'far2025'
  )
  player, loose = jax.lax.top_k(jnp.where(legal, order, -1.0), 2)[1]
  return places[player], places[jnp.concatenate([loose[None], boxes])]


def _put(
  order: Array, exists: Array, is_box: Array, variant: str
) -> tuple[Array, Array, Array]:
  """Puts items at the legal places that come first in a random order.

  Args:
    order: [P] of the places; the largest is first.
    exists: [items] whether the item needs a place.
    is_box: [items] whether it is two cells wide.
    variant: the variant of `Params`.

  Returns:
    [items] indices of places, [items] whether they were found, and [P] the
    places that are still legal.
  """

  def put(legal, item):
    is_box, exists = item
    chosen = jnp.where(legal, order, -1.0).argmax()
    found = legal[chosen] & exists
    fit = jnp.asarray(FIT[variant])[is_box.astype(jnp.int32), chosen]
    return legal & (fit | ~exists), (chosen, found)

  legal, (chosen, found) = jax.lax.scan(
    put, jnp.ones(len(order), bool), (is_box, exists)
  )
  return chosen, found, legal


def draw_start(key: Array, place: Array, exists: Array) -> Array:
  """Draws the player's cell [2], uniform over those without an item."""
  starts = jnp.asarray(STARTS)
  offset = starts[:, None] - place[None]  # [S, I, 2]
  # The loose key has no lock beside it.
  width = jnp.where(jnp.arange(len(exists)) == 0, 0, 1)
  on_item = (
    (offset[..., 0] == 0)
    & (offset[..., 1] >= 0)
    & (offset[..., 1] <= width[None])
    & exists[None]
  )
  order = jax.random.uniform(key, (len(STARTS),))
  return starts[jnp.where(on_item.any(-1), -1.0, order).argmax()]
