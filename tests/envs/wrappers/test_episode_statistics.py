"""Tests rmc_jax/envs/wrappers/episode_statistics.py."""

import jax
import numpy as np

from rmc_jax.envs import AutoReset
from rmc_jax.envs import EpisodeStatistics
from tests.envs.wrappers.games import Counter


def test_the_final_state_has_return_and_length_of_the_episode():
  env = AutoReset(EpisodeStatistics(Counter()))
  state = env.reset(jax.random.key(0), 3)
  returns, lengths = [], []
  for t, action in enumerate([0, 0, 0, 0, 1, 1]):
    state, outcome = env.step(jax.random.key(t), state, action, 3)
    if outcome.terminated or outcome.truncated:
      returns.append(float(outcome.final_state.episode_return))
      lengths.append(int(outcome.final_state.episode_length))
      assert (state.episode_return, state.episode_length) == (0, 0)
    else:
      assert state.episode_length == state.game.step
  # Rewards are 0.5, 1.0, 1.5, ...
  assert returns == [3.0, 1.5, 0.5]
  assert lengths == [3, 2, 1]


def test_observations_are_those_of_the_game():
  env = EpisodeStatistics(Counter())
  state = env.reset(jax.random.key(0), 3)
  np.testing.assert_array_equal(
    env.observe(state, 3), Counter().observe(state.game, 3)
  )
  assert env.observation_spec == Counter.observation_spec
  assert env.num_actions == 2
