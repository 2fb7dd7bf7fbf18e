"""Tests rmc_jax/envs/wrappers/frame_stack.py."""

import jax
import numpy as np
import pytest

from rmc_jax.envs import AutoReset
from rmc_jax.envs import FrameStack
from tests.envs.wrappers.games import Counter


def steps_of(env, state):
  """Returns the steps that the frames show, oldest first."""
  pixels = env.observe(state, 9)
  assert pixels.shape == env.observation_spec.shape == (1, 2, 3)
  return pixels[0, 1].tolist()


def test_frames_follow_one_another_within_an_episode():
  env = FrameStack(AutoReset(Counter()), 3)
  state = env.reset(jax.random.key(0), 4)
  assert steps_of(env, state) == [0, 0, 0]
  shown, final = [], []
  for t in range(5):
    state, outcome = env.step(jax.random.key(t), state, 0, 4)
    shown.append(steps_of(env, state))
    final.append(steps_of(env, outcome.final_state))
  assert shown == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 0], [0, 0, 1]]
  assert final == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [0, 0, 1]]


def test_frames_go_on_without_automatic_resets():
  env = FrameStack(Counter(), 3)
  state = env.reset(jax.random.key(0), 2)
  for t in range(4):
    state, outcome = env.step(jax.random.key(t), state, 0, 2)
    assert outcome.final_state is None
  assert steps_of(env, state) == [2, 3, 4]


def test_frames_stand_in_the_channels():
  env = FrameStack(Counter(), 3)
  state = env.reset(jax.random.key(0), 9)
  np.testing.assert_array_equal(
    env.observe(state, 9)[0, 0], [state.game.start] * 3
  )


def test_wrong_numbers_of_frames_are_refused():
  with pytest.raises(ValueError, match='num_frames must be at least 1. Got: 0'):
    FrameStack(Counter(), 0)
