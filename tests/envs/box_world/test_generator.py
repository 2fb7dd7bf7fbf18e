"""Tests rmc_jax/envs/box_world/generator.py: every level can be solved."""

import collections
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.envs.box_world import generator
from rmc_jax.envs.box_world import make_params
from rmc_jax.envs.box_world.constants import GEM
from tests.envs.box_world import games
from tests.reference import box_world as reference


def solvable(levels):
  """Returns whether the gem can be reached, by the rules alone; [N].

  Takes what the player can reach, a key before a lock, until nothing is left.
  No choice is ever wrong: while a key can be taken, none is held.
  """
  num = len(levels.player)
  rows = np.arange(num)[:, None]
  place = levels.place  # [N, I, 2]
  beside = place + np.array([0, 1])
  has_lock, has_content = levels.has_lock.copy(), levels.has_content.copy()
  held, player = levels.held.copy(), levels.player.copy()
  solved = np.zeros(num, bool)
  while not solved.all():
    free = np.zeros((num, 14, 14), bool)
    free[:, 1:-1, 1:-1] = True
    for cells, blocks in ((beside, has_lock), (place, has_lock & has_content)):
      free[rows, cells[..., 0], cells[..., 1]] &= ~blocks
    reached = np.zeros_like(free)
    reached[rows[:, 0], player[:, 0], player[:, 1]] = True
    while True:
      wider = reached.copy()
      wider[:, 1:] |= reached[:, :-1]
      wider[:, :-1] |= reached[:, 1:]
      wider[:, :, 1:] |= reached[:, :, :-1]
      wider[:, :, :-1] |= reached[:, :, 1:]
      near, wider = wider, wider & free
      if (wider == reached).all():
        break
      reached = wider
    key = has_content & ~has_lock & reached[rows, place[..., 0], place[..., 1]]
    solved |= (key & (levels.content == GEM)).any(1)
    lock = (
      has_lock
      & ~levels.is_distractor
      & (levels.lock == held[:, None])
      & near[rows, beside[..., 0], beside[..., 1]]
    )
    # One key or lock of each level; without any, there is no way on.
    item = np.where(key.any(1), key.argmax(1), lock.argmax(1))
    takes, opens = key.any(1), ~key.any(1) & lock.any(1)
    if not ((takes | opens) & ~solved).any():
      break
    index = rows[:, 0]
    has_content[index[takes], item[takes]] = False
    has_lock[index[opens], item[opens]] = False
    held = np.where(
      takes, levels.content[index, item], np.where(opens, -1, held)
    )
    target = np.where(takes[:, None], place[index, item], beside[index, item])
    player = np.where((takes | opens)[:, None], target, player)
  return solved


@pytest.mark.parametrize('preset', ['paper', 'pycolab'])
def test_levels_have_solutions_of_their_length(preset):
  params = make_params(preset)
  levels = games.draw_levels(0, params, 60)
  for index in range(60):
    level = games.to_reference(games.row(levels, index))
    actions = reference.solve(level)
    assert len(actions) < 100
    total = 0
    for action in actions:
      level, reward, end = reference.move(level, action)
      total += reward
    assert end == 'gem'
    num_solution = levels.has_lock[index, 1:6].sum()
    assert total == 10 + num_solution
  assert solvable(levels).all()
  # Both find the levels of `far2025` that have no solution.
  levels = games.draw_levels(0, make_params('far2025'), 2000)
  unsolvable = np.flatnonzero(~solvable(levels))
  # 0.48 % of levels: 9.6, within three standard deviations.
  assert 1 <= len(unsolvable) <= 18
  for index in unsolvable[:4]:
    level = games.to_reference(games.row(levels, index))
    assert reference.solve(level, far2025=True) is None
  # Without the loose key there is no solution.
  levels = games.draw_levels(0, params, 60)
  levels.has_content[:, 0] = False
  assert not solvable(levels).any()


@pytest.mark.slow
@pytest.mark.parametrize('preset', ['paper', 'pycolab'])
def test_very_many_levels_can_be_solved(preset):
  for seed in range(5):
    levels = games.draw_levels(10 + seed, make_params(preset), 20_000)
    assert solvable(levels).all()


def test_levels_of_far2025_are_distributed_as_in_the_public_code():
  levels = games.draw_levels(6, make_params('far2025'), 20_000)
  assert (levels.has_lock.sum(1) == 6).all()
  assert (levels.content[:, 3] == GEM).all()
  assert levels.lock[levels.has_lock].max() == 18
  has = levels.has_content
  rows, columns = levels.place[..., 0], levels.place[..., 1]
  assert (rows[has].min(), rows[has].max()) == (1, 12)
  assert (columns[has].min(), columns[has].max()) == (1, 11)
  same_row = (
    (rows[:, :, None] == rows[:, None]) & has[:, :, None] & has[:, None]
  )
  distance = abs(columns[:, :, None] - columns[:, None])
  assert (distance[same_row & ~np.eye(11, dtype=bool)] >= 3).all()
  # Of 100,000 levels of the public code: the player's row and column, and the
  # first column of a box. Standard errors: 0.011, 0.010 and 0.0040.
  first = np.where(levels.has_lock, columns, 99).min(1)
  samples = np.column_stack([levels.player, first])
  deviation = samples.mean(0) - [6.5291, 6.0223, 2.0826]
  error = samples.std(0) * np.sqrt(1 / 20_000 + 1 / 100_000)
  assert (abs(deviation) < 4 * error).all()


@pytest.mark.slow
def test_as_many_levels_of_far2025_as_published_have_no_solution():
  share = np.mean(
    [
      ~solvable(games.draw_levels(20 + seed, make_params('far2025'), 20_000))
      for seed in range(5)
    ]
  )
  # 0.48 % of 20,000 levels of the public code.
  error = np.sqrt(0.0048 * (1 / 100_000 + 1 / 20_000))
  assert abs(share - 0.0048) < 4 * error


def test_boxes_are_apart_and_within_the_room():
  levels = games.draw_levels(1, make_params(), 5000)
  has = levels.has_content
  assert (levels.place[has] >= 2).all()
  assert (levels.place[has] <= (11, 9)).all()
  for index in range(2000):
    cells = [tuple(place) for place in levels.place[index][has[index]]]
    cells += [(r, c + 1) for r, c in cells[1:]]
    boxes = np.array(cells)
    owner = [*range(has[index].sum()), *range(1, has[index].sum())]
    for a, b in np.ndindex(len(cells), len(cells)):
      if owner[a] != owner[b]:
        assert abs(boxes[a] - boxes[b]).max() > 1
    assert tuple(levels.player[index]) not in cells
  rows, columns = levels.player.T
  assert (rows.min(), rows.max()) == (2, 11)
  assert (columns.min(), columns.max()) == (1, 11)


def test_lengths_are_uniform():
  params = make_params(min_solution=2, min_distractors=1, max_distractors=4)
  levels = games.draw_levels(2, params, 8000)
  solution = levels.has_lock[:, 1:6].sum(1)
  distractors = levels.has_lock[:, 6:].sum(1)
  counts = collections.Counter(zip(solution, distractors, strict=True))
  assert counts.keys() == {(s, d) for s in range(2, 6) for d in range(1, 5)}
  # Five standard deviations of counts of 500.
  assert max(abs(count - 500) for count in counts.values()) < 5 * 500**0.5


def test_colours_make_one_chain_and_dead_ends():
  levels = games.draw_levels(3, make_params(), 4000)
  firsts = collections.Counter()
  for index in range(4000):
    lock, content = levels.lock[index], levels.content[index]
    length = levels.has_lock[index, 1:6].sum()
    chain = content[: length + 1]
    firsts[int(chain[0])] += 1
    np.testing.assert_array_equal(lock[1 : length + 1], chain[:-1])
    assert chain[-1] == GEM
    assert len(set(chain)) == length + 1
    for item in np.flatnonzero(levels.has_lock[index]):
      if levels.is_distractor[index, item]:
        assert item > 5
        assert lock[item] in chain[:-1]
        assert content[item] not in chain
  assert len(firsts) == 20
  assert max(abs(count - 200) for count in firsts.values()) < 5 * 200**0.5


@pytest.mark.parametrize('num_items', [6, 8, 10, 11])
def test_a_layout_fits_as_often_as_item_by_item(num_items):
  num, rng = 2000, random.Random(0)
  expected = np.mean(
    [reference.place_items(rng, num_items) is None for _ in range(num)]
  )
  keys = jax.random.split(jax.random.key(num_items), 5 * num)
  attempt = jax.jit(jax.vmap(generator.attempt_places, (0, None)))
  _, found = attempt(keys, jnp.arange(11) < num_items)
  failed = (np.asarray(found).sum(1) < num_items).mean()
  error = np.sqrt(failed * (1 / num + 1 / len(keys)))
  assert abs(failed - expected) <= 3 * error


def test_no_level_lacks_a_box():
  params = make_params(min_solution=5, min_distractors=5)
  assert games.draw_levels(4, params, 5000).has_content.all()


def test_the_first_item_is_anywhere():
  levels = games.draw_levels(5, make_params(), 16_000)
  index = (levels.place[:, 0] - 2) @ [8, 1]
  counts = np.bincount(index, minlength=80)
  assert abs(counts - 200).max() < 5 * 200**0.5


@pytest.mark.parametrize('variant', ['pycolab', 'far2025'])
def test_branches_of_distractors_are_chains(variant):
  params = make_params(
    variant=variant,
    max_solution=3,
    min_distractors=2,
    max_distractors=2,
    branch_length=3,
  )
  assert params.distractor_boxes == 6
  levels = games.draw_levels(5, params, 3000)
  assert levels.lock.shape == (3000, 12)
  assert levels.has_lock[:, 6:].all()
  counts = collections.Counter()
  for index in range(3000):
    lock, content = levels.lock[index], levels.content[index]
    way = content[: levels.has_lock[index, 1:6].sum()]
    for start in (6, 9):
      locks, keys = lock[start : start + 3], content[start : start + 3]
      assert locks[0] in way
      assert not set(keys) & set(way)
      if variant == 'pycolab':
        np.testing.assert_array_equal(locks[1:], keys[:-1])
        assert keys[0] != keys[1] != keys[2]
        counts['again'] += keys[0] == keys[2]
      else:
        # With keys 0, 1, 2 of the branch, the boxes show 0, 2, 0, as in the
        # public code.
        assert (locks[1], keys[2]) == (keys[0], keys[0])
        assert len({keys[0], keys[1], locks[2]}) == 3
      counts['same'] += (lock[6] == lock[9]) & (start == 6)
  # One in 16 to 18 keys is that of two boxes before.
  assert variant == 'far2025' or 250 < counts['again'] < 450
  # Roots are drawn independently: 1 + 1/2 + 1/3 of 3 levels share them.
  assert abs(counts['same'] - 3000 * 11 / 18) < 5 * (3000 / 4) ** 0.5
