"""Tests rmc_jax/envs/mini_pacman/presets.py and Params."""

import numpy as np
import pytest

from rmc_jax.envs.mini_pacman import make_params


@pytest.mark.parametrize(
  'arguments, message',
  [
    ({'preset': 'i2a'}, "preset must be one of paper, public. Got: 'i2a'"),
    ({'mode': 'chase'}, 'mode must be one of regular, avoid'),
    ({'player_squares': 3}, 'player_squares must be 1 or 2. Got: 3'),
    ({'max_steps': 0}, 'max_steps must be at least 1. Got: 0'),
    ({'random_turns': 1.5}, r'random_turns must be in \[0, 1\]. Got: 1.5'),
    ({'ghost_speed': -1.0}, 'ghost_speed must be at least 0 and finite'),
    ({'food_reward': np.nan}, 'food_reward must be finite. Got: nan'),
  ],
)
def test_bad_rules_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    make_params(**arguments)
