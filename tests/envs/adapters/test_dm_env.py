"""Tests rmc_jax/envs/adapters/dm_env.py."""

from absl.testing import absltest
import dm_env
from dm_env import test_utils
import numpy as np
import pytest

from rmc_jax.envs import make
from rmc_jax.envs.adapters.dm_env import DmEnv


class MiniPacmanTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
  def make_object_under_test(self):
    return DmEnv(*make('mini_pacman', max_steps=5))


class BoxWorldTest(test_utils.EnvironmentTestMixin, absltest.TestCase):
  def make_object_under_test(self):
    env, params = make('box_world', max_steps=5, pixels='symbolic')
    return DmEnv(env, params, seed=3)


def play(env, num_steps):
  env.reset()
  for _ in range(num_steps):
    timestep = env.step(0)
    if timestep.last():
      return timestep
  return None


def test_only_termination_has_a_discount_of_0():
  timestep = play(DmEnv(*make('box_world', max_steps=5)), 5)
  assert (timestep.step_type, timestep.discount) == (dm_env.StepType.LAST, 1)
  # A ghost meets a player that stays.
  timestep = play(DmEnv(*make('mini_pacman', mode='hunt')), 500)
  assert (timestep.step_type, timestep.discount) == (dm_env.StepType.LAST, 0)
  assert timestep.reward == -20


def test_the_step_after_the_last_starts_an_episode():
  env = DmEnv(*make('box_world', view='full', max_steps=2))
  first = env.step(0)
  assert first.first()
  env.step(0)
  assert env.step(0).last()
  other = env.step(3)
  assert other.first()
  assert (other.observation != first.observation).any()
  assert env.game.state.step == 0


def test_wrong_actions_are_refused():
  env = DmEnv(*make('box_world'))
  env.reset()
  with pytest.raises(ValueError, match=r'Got: 1\.9'):
    env.step(1.9)
  with pytest.raises(ValueError, match='within bounds 0 <= 4 <= 3'):
    env.step(4)
  assert env.action_spec().num_values == 4
  assert env.observation_spec().dtype == np.float32
