"""Tests rmc_jax/training/nonfinite.py; test_loop.py tests it in the loop."""

import pathlib
import re

import pytest

from rmc_jax.errors import Diverged
from rmc_jax.training.nonfinite import NonfiniteConfig
from rmc_jax.training.nonfinite import NonfiniteStreak


def streak(*means, action='skip', patience=3):
  result = NonfiniteStreak(NonfiniteConfig(action, patience), 4)
  for i, mean in enumerate(means):
    result.count(4 * i + 4, mean)
  return result


@pytest.mark.parametrize(
  ('means', 'length', 'bad'),
  [
    ([0, 0], 0, {}),
    ([1, 1], 2, {4: 4, 8: 4}),
    ([1, 1, 0.75], 0, {4: 4, 8: 4, 12: 3}),  # One update was finite.
    ([0.25, 0, 1], 1, {4: 1, 12: 4}),
    # In an ensemble, a call counts if no member has a finite update.
    ([[1, 1], [0, 1]], 0, {4: 4, 8: 4}),
    ([[1, 0.5], [1, 1]], 1, {4: 4, 8: 4}),
  ],
)
def test_streak_counts_calls_without_a_finite_update(means, length, bad):
  counted = streak(*means)
  assert (counted.length, counted.bad) == (length, bad)
  assert not counted.exhausted


def test_skip_ends_the_run_when_patience_is_exhausted():
  counted = streak(0, 1, 1, 1)
  assert counted.exhausted
  with pytest.raises(Diverged, match='3 calls in a row up to step 40'):
    counted.roll_back(40, saved=20, last=False)


def test_roll_back_happens_once_per_checkpoint():
  def exhaust(counted):
    for _ in range(3):
      counted.count(40, 1)

  counted = streak(1, 1, 1, action='roll_back')
  counted.roll_back(40, saved=20, last=False)
  assert not counted.exhausted
  exhaust(counted)
  with pytest.raises(Diverged, match='after rolling back to step 20'):
    counted.roll_back(60, saved=20, last=False)
  with pytest.raises(Diverged):  # The run ends here.
    counted.roll_back(60, saved=50, last=True)
  counted.roll_back(60, saved=50, last=False)
  assert counted.length == 0


def test_error_mentions_whether_the_state_is_saved():
  assert 'continues without' in str(streak(0.5).stopped(pathlib.Path('run')))
  assert 'fail in the same' in str(streak(1).stopped(pathlib.Path('run')))
  assert streak(1).stopped(pathlib.Path('run')).exit_code == 76


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'action': 'ignore'}, "one of stop, skip, roll_back. Got: 'ignore'."),
    ({'patience': 0}, 'patience must be at least 1. Got: 0.'),
  ],
)
def test_invalid_config_raises(changes, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    NonfiniteConfig(**changes).validate()
