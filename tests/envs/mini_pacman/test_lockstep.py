"""Tests every step of Mini Pacman against the plain-Python reference."""

import collections
import dataclasses

import jax
import numpy as np
import pytest

from rmc_jax.envs.mini_pacman import make_params
from rmc_jax.envs.mini_pacman.presets import MODES
from rmc_jax.envs.mini_pacman.presets import PRESETS
from tests.envs.mini_pacman import games
from tests.reference import mini_pacman as reference


def compare(preset, mode, num_games, num_steps, seed=0, **changes):
  params = make_params(preset, mode, **changes)
  rules = dataclasses.asdict(params)
  states, actions, draws, outcomes = games.play(
    jax.random.key(seed), params, num_games, num_steps
  )
  counts = collections.Counter()
  for game in range(num_games):
    before = games.to_reference(games.row(states, 0, game))
    for t in range(num_steps):
      expected = reference.Game(
        before,
        games.ACTIONS[actions[t, game]],
        games.draws_to_reference(games.row(draws, t, game)),
        rules,
      )
      where = f'game {game}, step {t}'
      after = games.to_reference(games.row(states, t + 1, game))
      assert after == expected.state, where
      outcome = games.row(outcomes, t, game)
      assert outcome.reward == pytest.approx(expected.reward, abs=1e-5), where
      assert outcome.terminated == expected.died, where
      assert outcome.truncated == expected.out_of_time, where
      counts['levels'] += after['level'] > before['level']
      counts['deaths'] += expected.died
      counts['truncations'] += expected.out_of_time
      counts['ghosts eaten'] += expected.ate_ghost
      if expected.died:
        break
      before = after
  return counts


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('preset', PRESETS)
def test_steps_equal_those_of_the_reference(preset, mode):
  counts = compare(preset, mode, num_games=60, num_steps=12, max_steps=10)
  assert counts['truncations'] > 5
  assert counts['deaths'] > 5
  assert counts['ghosts eaten'] > 5
  assert counts['levels'] > (2 if mode != 'avoid' else 0)


@pytest.mark.slow
@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('preset', PRESETS)
def test_many_steps_equal_those_of_the_reference(preset, mode):
  compare(preset, mode, num_games=2000, num_steps=200, seed=1)


@pytest.mark.parametrize('preset', PRESETS)
def test_no_sequence_of_actions_leaves_the_state_space(preset):
  for index, mode in enumerate(MODES):
    states, *_ = games.play(
      jax.random.key(index), make_params(preset, mode), 64, 150
    )
    for cells in (states.player, states.ghosts, states.pills):
      assert cells.min() >= 0
      assert cells.max() < 138
    assert set(np.unique(states.directions)) <= {0, 1, 2, 3}
    assert states.power.min() >= 0
    assert states.power.max() == 20
    assert states.level.min() >= 1
    assert (np.diff(states.step, axis=0) == 1).all()
