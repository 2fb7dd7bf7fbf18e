"""Tests rmc_jax/envs/adapters/gymnasium.py."""

import copy
import pickle

import gymnasium
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.envs.adapters import gymnasium as adapter

IDS = list(adapter.IDS)
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


@pytest.mark.parametrize('pixels', ['rgb', 'symbolic'])
@pytest.mark.parametrize('name', IDS)
def test_gymnasium_accepts_the_environment(name, pixels):
  env = gymnasium.make(name, pixels=pixels, view='full', render_mode='ansi')
  check_env(env.unwrapped)
  assert env.spec.id == name


@pytest.mark.parametrize('name', IDS)
def test_episodes_end_and_start_again(name):
  env = gymnasium.make(name, max_steps=5)
  with pytest.raises(gymnasium.error.ResetNeeded):
    env.step(0)
  first, info = env.reset(seed=3)
  assert info == {}
  for _ in range(5):
    pixels, reward, terminated, truncated, info = env.step(0)
    if terminated:
      break
  assert terminated or truncated
  assert isinstance(reward, float)
  assert isinstance(truncated, bool)
  assert pixels in env.observation_space
  other, _ = env.reset()
  assert (other != first).any()
  again, _ = env.reset(seed=3)
  np.testing.assert_array_equal(again, first)


def test_without_a_seed_environments_differ():
  one, two = (gymnasium.make(IDS[0], view='full').reset()[0] for _ in range(2))
  assert (one != two).any()


def test_pictures_show_the_game():
  env = gymnasium.make(IDS[1], render_mode='rgb_array')
  env.reset(seed=0)
  assert env.render().shape == (15 * 16, 19 * 16, 3)
  env = gymnasium.make(IDS[1], render_mode='ansi')
  env.reset(seed=0)
  assert env.render().count('#') == 15 * 19 - 138


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('name', IDS)
def test_every_game_of_many_equals_one_alone(name, mode):
  # Games that end at different steps.
  kwargs = {'view': 'full', 'max_steps': 30, 'pixels': 'symbolic'}
  if name == 'rmc_jax/BoxWorld-v0':
    kwargs |= {'max_solution': 1}
  many = gymnasium.make_vec(name, num_envs=3, autoreset_mode=mode, **kwargs)
  alone = gymnasium.vector.SyncVectorEnv(
    [lambda: gymnasium.make(name, **kwargs)] * 3, autoreset_mode=mode
  )
  for envs in (many, alone):
    envs.action_space.seed(0)
  np.testing.assert_array_equal(
    many.reset(seed=5)[0], alone.reset(seed=[5, 6, 7])[0]
  )
  num_ended = 0
  for _ in range(100):
    actions = many.action_space.sample()
    *got, got_infos = many.step(actions)
    *expected, infos = alone.step(actions)
    for left, right in zip(got, expected, strict=True):
      np.testing.assert_array_equal(left, right)
      assert left.dtype == right.dtype
    assert infos.keys() == got_infos.keys()
    if 'final_obs' in infos:
      mask = infos['_final_obs']
      np.testing.assert_array_equal(got_infos['_final_obs'], mask)
      np.testing.assert_array_equal(got_infos['_final_info'], mask)
      assert got_infos['final_info'] == infos['final_info']
      for left, right in zip(
        got_infos['final_obs'][mask], infos['final_obs'][mask], strict=True
      ):
        np.testing.assert_array_equal(left, right)
    num_ended += int((got[2] | got[3]).sum())
  assert num_ended > 6


@pytest.mark.parametrize('mode', MODES)
def test_gymnasium_wrappers_accept_the_vector_environment(mode):
  envs = gymnasium.make_vec(
    IDS[0], num_envs=4, autoreset_mode=mode, max_steps=6
  )
  assert envs.metadata['autoreset_mode'] == mode
  size = 5, 5, 6
  if mode == AutoresetMode.NEXT_STEP:  # The only one of this wrapper.
    envs = gymnasium.wrappers.vector.FlattenObservation(envs)
    size = (5 * 5 * 6,)
  envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
  pixels, _ = envs.reset(seed=0)
  assert pixels.shape == (4, *size)
  for _ in range(6):
    pixels, _, terminated, truncated, infos = envs.step(np.zeros(4, int))
  assert (terminated | truncated).all()
  assert infos['episode']['l'].tolist() == [6] * 4


def test_a_bank_of_levels_limits_the_levels():
  envs = gymnasium.make_vec(
    IDS[0], num_envs=50, num_levels=3, view='full', max_steps=1
  )
  pixels, _ = envs.reset(seed=0)
  levels = {image.tobytes() for image in pixels}
  assert len(levels) == 3
  envs.step(np.zeros(50, int))
  pixels, *_ = envs.step(np.zeros(50, int))
  assert {image.tobytes() for image in pixels} <= levels
  # A seed determines the levels too.
  other, _ = envs.reset(seed=1)
  assert levels.isdisjoint(image.tobytes() for image in other)
  again, _ = envs.reset(seed=0)
  assert {image.tobytes() for image in again} == levels


def test_seeds_of_many_games():
  envs = gymnasium.make_vec(IDS[0], num_envs=3, view='full')
  first, _ = envs.reset(seed=[4, 9, 4])
  np.testing.assert_array_equal(first[0], first[2])
  assert (first[0] != first[1]).any()
  other, _ = envs.reset()
  assert (other[0] != first[0]).any()
  drawn, _ = envs.reset(seed=[4, None, 9])
  np.testing.assert_array_equal(drawn[[0, 2]], first[[0, 1]])
  with pytest.raises(ValueError, match='seed must have 3 elements. Got: 2'):
    envs.reset(seed=[1, 2])
  with pytest.raises(ValueError, match='seed must be below'):
    envs.reset(seed=2**32 - 1)


def test_actions_may_be_arrays_of_jax_or_lists():
  envs = gymnasium.make_vec(IDS[0], num_envs=2)
  envs.reset(seed=0)
  for actions in (jnp.array([1, 2]), [1, 2], np.array([1, 2], np.uint8)):
    assert envs.step(actions)[0].shape == (2, 5, 5, 6)
  env = gymnasium.make(IDS[0], disable_env_checker=True)
  env.reset(seed=0)
  for action in (jnp.array(1), np.uint8(1), 1):
    env.step(action)


def test_many_games_are_rendered():
  envs = gymnasium.make_vec(IDS[0], num_envs=2, render_mode='ansi')
  envs.reset(seed=3)
  texts = envs.render()
  assert len(texts) == 2
  assert texts[0] != texts[1]
  alone = gymnasium.make(IDS[0], render_mode='ansi')
  alone.reset(seed=4)
  assert texts[1] == alone.render()


def test_specifications_survive_a_copy():
  spec = gymnasium.make(IDS[0], max_solution=2).spec
  copied = pickle.loads(pickle.dumps(copy.deepcopy(spec)))
  assert gymnasium.make(copied).unwrapped.game.params.max_solution == 2


def test_wrong_arguments_are_refused():
  with pytest.raises(ValueError, match='render_mode must be one of rgb_array'):
    gymnasium.make(IDS[0], render_mode='human', disable_env_checker=True)
  env = gymnasium.make(IDS[0], disable_env_checker=True)
  env.reset(seed=0)
  with pytest.raises(ValueError, match=r'action must be in Discrete\(4\)'):
    env.step(4)
  with pytest.raises(ValueError, match='autoreset_mode must be one of'):
    gymnasium.make_vec(
      IDS[0], num_envs=2, autoreset_mode=AutoresetMode.DISABLED
    )
  with pytest.raises(ValueError, match='num_envs must be at least 1'):
    gymnasium.make_vec(IDS[0], num_envs=0)
  envs = gymnasium.make_vec(IDS[0], num_envs=2)
  with pytest.raises(gymnasium.error.ResetNeeded):
    envs.step(np.array([0, 0]))
  envs.reset(seed=0)
  with pytest.raises(ValueError, match='actions must be in MultiDiscrete'):
    envs.step(np.array([0, 4]))
