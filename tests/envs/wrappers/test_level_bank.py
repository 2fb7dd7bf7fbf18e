"""Tests rmc_jax/envs/wrappers/level_bank.py."""

import collections

import jax
import numpy as np
import pytest

from rmc_jax.envs import AutoReset
from rmc_jax.envs import LevelBank
from rmc_jax.envs import make
from tests.envs.wrappers.games import Counter

ENV = LevelBank(Counter())


def test_episodes_start_from_all_levels_alike():
  bank = ENV.draw(jax.random.key(0), 3, 5)
  assert bank.levels.start.shape == (5,)
  keys = jax.random.split(jax.random.key(1), 2000)
  starts = jax.vmap(ENV.reset, (0, None))(keys, bank).start
  counts = collections.Counter(starts.tolist())
  assert counts.keys() == set(bank.levels.start.tolist())
  # Five standard deviations.
  assert max(abs(count - 400) for count in counts.values()) < 5 * 400**0.5


def test_steps_follow_the_rules_of_the_bank():
  bank = ENV.draw(jax.random.key(0), 2, 5)
  env = AutoReset(ENV)
  state = env.reset(jax.random.key(0), bank)
  for t in range(6):
    state, outcome = env.step(jax.random.key(t), state, 0, bank)
    assert outcome.truncated == (t % 2 == 1)
    assert state.start in bank.levels.start
  np.testing.assert_array_equal(
    env.observe(state, bank), Counter().observe(state, 2)
  )


def test_refresh_replaces_as_many_levels_as_asked():
  bank = ENV.draw(jax.random.key(0), 3, 64)
  fresh = ENV.refresh(jax.random.key(1), bank, 10)
  assert (fresh.levels.start != bank.levels.start).sum() == 10
  again = ENV.refresh(jax.random.key(2), fresh, 64)
  assert (again.levels.start != fresh.levels.start).all()
  assert again.params == 3


def test_a_level_of_a_game_is_kept_whole():
  env, params = make('box_world')
  bank = LevelBank(env).draw(jax.random.key(0), params, 3)
  state = LevelBank(env).reset(jax.random.key(4), bank)
  (index,) = np.flatnonzero(
    (bank.levels.place == state.place[None]).all((1, 2))
  )
  jax.tree.map(
    lambda levels, leaf: np.testing.assert_array_equal(levels[index], leaf),
    bank.levels,
    state,
  )


def test_wrong_sizes_are_refused():
  with pytest.raises(ValueError, match='num_levels must be at least 1. Got: 0'):
    ENV.draw(jax.random.key(0), 3, 0)
  bank = ENV.draw(jax.random.key(0), 3, 4)
  with pytest.raises(ValueError, match='size of the bank, 4. Got: 5'):
    ENV.refresh(jax.random.key(0), bank, 5)
