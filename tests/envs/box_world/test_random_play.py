"""Tests random play of BoxWorld against the statistics of public code."""

import jax
import numpy as np
import pytest

from rmc_jax.envs.box_world import make_params
from tests.envs.box_world import games

NUM_GAMES = 3000


# Levels, number of the public code's episodes (pycolab's, but for the last),
# their mean return and its standard error, and the shares that the gem and a
# distractor ended.
@pytest.mark.slow
@pytest.mark.parametrize(
  'levels, num, mean, error, gem, distractor',
  [
    ({'max_steps': 121}, 3000, 0.052, 0.016, 0.005, 0.054),
    (
      {'max_steps': 121, 'max_solution': 1, 'max_distractors': 0},
      2000,
      0.36,
      0.04,
      0.031,
      0.0,
    ),
    (
      {'max_steps': 121, 'min_solution': 5, 'min_distractors': 5},
      2000,
      0.009,
      0.007,
      0.0,
      0.042,
    ),
    # Of the code of train-learned-planner.
    ({'preset': 'far2025'}, 3000, -11.688, 0.0122, 0.0, 0.0087),
  ],
)
def test_random_play_ends_as_in_the_public_code(
  levels, num, mean, error, gem, distractor
):
  params = make_params(**levels)
  _, _, outcomes = games.play(
    jax.random.key(7), params, NUM_GAMES, params.max_steps
  )
  ended = outcomes.terminated.cumsum(0)
  # Up to the end, this step included.
  played = (ended == 0) | ((ended == 1) & outcomes.terminated)
  returns = (outcomes.reward * played).sum(0)
  own_error = returns.std() / np.sqrt(NUM_GAMES)
  assert abs(returns.mean() - mean) < 3 * np.hypot(own_error, error)
  last = (outcomes.reward * (played & outcomes.terminated)).sum(0)
  for share, expected in (
    ((last > 5).mean(), gem),
    ((last <= -1).mean(), distractor),
  ):
    # Poisson counts; shares are rounded to 0.001.
    deviation = np.sqrt(max(share, expected) * (1 / num + 1 / NUM_GAMES))
    assert abs(share - expected) <= 3 * deviation + 5e-4
