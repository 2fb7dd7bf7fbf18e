"""Tests rmc_jax/tasks/babi/noise.py."""

import collections
import itertools

import numpy as np
import pytest

from rmc_jax.tasks.babi.noise import consecutive_times
from rmc_jax.tasks.babi.noise import noisy_times


def test_consecutive_times():
  times = consecutive_times(np.array([3, 0, 5]), 5)
  assert times.tolist() == [[1, 2, 3, 0, 0], [0] * 5, [1, 2, 3, 4, 5]]


@pytest.mark.parametrize('fraction', [0.1, 0.5])
def test_times_increase_and_are_capped(fraction):
  length = np.arange(0, 21)
  times = noisy_times(np.random.default_rng(0), length, 20, 18, fraction)
  assert times.shape == (21, 20)
  for n, row in zip(length, times, strict=True):
    assert not row[n:].any()
    assert (row[:n] >= np.minimum(np.arange(1, n + 1), 18)).all()
    below_cap = row[:n][row[:n] < 18]
    assert (np.diff(below_cap) > 0).all()
    assert row.max() <= min(18, n + np.ceil(fraction * n))


def test_all_choices_are_equally_likely_given_the_gaps():
  # n = 3, fraction 0.5: 0, 1 or 2 gaps; with g, any 3 of the 3 + g times.
  number = 30_000
  rows = noisy_times(
    np.random.default_rng(1), np.full(number, 3), 3, 9, fraction=0.5
  )
  expected = collections.Counter()
  for gaps in range(3):
    choices = list(itertools.combinations(range(1, 4 + gaps), 3))
    for choice in choices:
      expected[choice] += number / 3 / len(choices)
  seen = collections.Counter(map(tuple, rows.tolist()))
  assert seen.keys() == expected.keys()
  for choice, count in expected.items():
    # Five standard deviations of a binomial.
    assert abs(seen[choice] - count) < 5 * np.sqrt(count)


def test_golden_times():
  times = noisy_times(np.random.default_rng(5), np.array([4, 10]), 10, 10)
  assert times.tolist() == [
    [2, 3, 4, 5, 0, 0, 0, 0, 0, 0],
    [1, 3, 4, 5, 6, 7, 8, 9, 10, 10],
  ]


def test_the_cap_may_differ_between_rows():
  length = np.array([9, 9])
  times = noisy_times(
    np.random.default_rng(2), length, 9, np.array([4, 30]), fraction=1.0
  )
  assert times[0].max() == 4
  assert times[1].max() > 9
