"""Tests `rmc_jax.training.nonfinite`; the loop's part is in test_loop.py."""

import re

import pytest

from rmc_jax.errors import Diverged
from rmc_jax.training.nonfinite import NonfiniteConfig
from rmc_jax.training.nonfinite import Streak


def streak(*shares, action='skip', patience=3):
  result = Streak(NonfiniteConfig(action, patience), updates_per_call=4)
  for share in shares:
    result.count({'nonfinite': share})
  return result


@pytest.mark.parametrize(
  ('shares', 'length', 'left_out'),
  [
    ([0, 0], 0, 0),
    ([1, 1], 2, 8),
    ([1, 1, 0.75], 0, 11),  # One update was applied: it got somewhere.
    ([0.25, 0, 1], 1, 5),
  ],
)
def test_only_calls_of_which_nothing_was_applied_make_a_streak(
  shares, length, left_out
):
  counted = streak(*shares)
  assert (counted.length, counted.left_out) == (length, left_out)
  assert not counted.broken


def test_skipping_ends_with_the_patience():
  counted = streak(0, 1, 1, 1)
  assert counted.broken
  with pytest.raises(Diverged, match='3 calls in a row up to step 40'):
    counted.give_up_or_go_on(40, saved=20, rolled_back_to=None, last=False)


def test_rolling_back_begins_anew_once_for_each_checkpoint():
  counted = streak(1, 1, 1, action='roll_back')
  counted.give_up_or_go_on(40, saved=20, rolled_back_to=None, last=False)
  assert not counted.broken
  for _ in range(3):
    counted.count({'nonfinite': 1})
  with pytest.raises(Diverged, match='after going back to step 20'):
    counted.give_up_or_go_on(60, saved=20, rolled_back_to=20, last=False)
  with pytest.raises(Diverged):  # Nothing is left to go on with.
    counted.give_up_or_go_on(60, saved=50, rolled_back_to=20, last=True)
  counted.give_up_or_go_on(60, saved=50, rolled_back_to=20, last=False)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'action': 'ignore'}, "one of stop, skip, roll_back. Got: 'ignore'."),
    ({'patience': 0}, 'patience must be >= 1. Got: 0.'),
  ],
)
def test_what_makes_no_sense_is_refused(changes, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    NonfiniteConfig(**changes).validate()
