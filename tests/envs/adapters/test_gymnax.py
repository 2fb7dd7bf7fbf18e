"""Tests rmc_jax/envs/adapters/gymnax.py with the wrappers of gymnax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.envs import make

gymnax = pytest.importorskip(
  'gymnax', reason='no release of gymnax allows the JAX of this Python'
)
from gymnax import wrappers  # noqa: E402
from gymnax.environments import environment  # noqa: E402

from rmc_jax.envs.adapters.gymnax import GymnaxEnv  # noqa: E402


def build(name='mini_pacman', **changes):
  return GymnaxEnv(*make(name, **changes))


@pytest.mark.parametrize('name', ['mini_pacman', 'box_world'])
def test_steps_equal_those_of_gymnax_itself(name):
  env = build(name, max_steps=3)
  params = env.default_params
  pixels, state = env.reset(jax.random.key(0))
  assert env.observation_space(params).contains(pixels)
  for t in range(5):
    key = jax.random.key(t)
    action = env.action_space(params).sample(key)
    expected = environment.Environment.step(env, key, state, action, params)
    found = env.step(key, state, action)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    state = found[1]
    assert found[4] == (t == 2)


def test_wrappers_of_gymnax_run_on_many_games():
  env = wrappers.LogWrapper(wrappers.FlattenObservationWrapper(build()))
  params = env.default_params
  keys = jax.random.split(jax.random.key(0), 6)
  pixels, state = jax.vmap(env.reset, (0, None))(keys, params)
  assert pixels.shape == (6, 75)

  def advance(state, key):
    keys = jax.random.split(key, 6)
    actions = jax.random.randint(key, (6,), 0, env.num_actions)
    step = jax.vmap(env.step, (0, 0, 0, None))
    pixels, state, reward, terminated, truncated, info = step(
      keys, state, actions, params
    )
    return state, (reward, terminated | truncated, info)

  _, (rewards, ended, info) = jax.jit(
    lambda state: jax.lax.scan(
      advance, state, jax.random.split(jax.random.key(1), 200)
    )
  )(state)
  assert ended.any(0).all()
  # The returns of the first episodes.
  first = np.asarray(ended).argmax(0)
  for game in range(6):
    np.testing.assert_allclose(
      info['returned_episode_returns'][first[game], game],
      rewards[: first[game] + 1, game].sum(),
      rtol=1e-5,
    )
  assert info['returned_episode_lengths'][first, jnp.arange(6)].tolist() == (
    (first + 1).tolist()
  )


def test_the_old_interface_of_gymnax_and_its_gymnasium_adapter():
  env = wrappers.LegacyStepAPIWrapper(build('box_world', max_steps=2))
  _, state = env.reset(jax.random.key(0))
  done = []
  for t in range(4):
    pixels, state, reward, ended, info = env.step(jax.random.key(t), state, 0)
    done.append(bool(ended))
  assert done == [False, True, False, True]
  host = wrappers.GymnaxToGymWrapper(build('box_world', view='full'))
  pixels, _ = host.reset(seed=3)
  assert pixels.shape == (14, 14, 3)
  pixels, reward, terminated, truncated, _ = host.step(0)
  assert (pixels.shape, float(reward)) == ((14, 14, 3), 0.0)


def test_other_rules_may_be_given_to_every_call():
  env = build(max_steps=1)
  _, params = make('mini_pacman', max_steps=2)
  _, state = env.reset(jax.random.key(0), params)
  *_, truncated, _ = env.step(jax.random.key(0), state, 0, params)
  assert not truncated
  *_, truncated, _ = env.step(jax.random.key(0), state, 0)
  assert truncated
  assert (env.name, env.num_actions) == ('MiniPacman', 5)
  np.testing.assert_array_equal(
    env.get_obs(state), env.reset(jax.random.key(0), params)[0]
  )
