"""Tests rmc_jax/tasks/language/contexts.py."""

import numpy as np
import pytest

from rmc_jax.tasks.language.contexts import contexts
from rmc_jax.tasks.language.contexts import random_rows


def test_every_word_after_the_first_follows_the_words_before_it():
  ids = np.random.default_rng(0).integers(0, 9, 17).astype(np.uint16)
  rows = contexts(ids, 5)
  assert rows.shape == (12, 6)
  for i in range(12):
    assert rows[i].tolist() == [ids[i + j] for j in range(6)]
  np.testing.assert_array_equal(rows[:, -1], ids[5:])


def test_a_mapped_text_is_read_only_where_it_is_indexed(tmp_path):
  path = tmp_path / 'ids'
  np.arange(1_000_000, dtype=np.uint16).tofile(path)
  ids = np.memmap(path, np.uint16, 'r')
  rows = contexts(ids, 100)
  assert np.shares_memory(rows, ids)
  assert rows[[3, 900]].tolist() == [[*range(3, 104)], [*range(900, 1001)]]


@pytest.mark.parametrize(
  'size, message',
  [(0, 'size must be at least 1. Got: 0'), (7, 'has 7 words.* need 8')],
)
def test_bad_sizes_are_refused(size, message):
  with pytest.raises(ValueError, match=message):
    contexts(np.arange(7), size)


def test_shortest_text_has_one_row():
  assert contexts(np.arange(7), 6).tolist() == [[*range(7)]]


def test_random_rows_depend_on_seed_and_step_and_cover_all_rows():
  first = random_rows(11, 5, seed=3, step=2)
  assert first.shape == (5,)
  np.testing.assert_array_equal(first, random_rows(11, 5, seed=3, step=2))
  assert (first != random_rows(11, 5, seed=3, step=4)).any()
  assert (first != random_rows(11, 5, seed=4, step=2)).any()
  drawn = np.concatenate([random_rows(11, 5, 0, step) for step in range(400)])
  counts = np.bincount(drawn, minlength=11)
  # 2,000 draws: 182 on average, with a standard deviation of 13.
  assert counts.shape == (11,)
  assert (abs(counts - 2000 / 11) < 5 * 13).all()
