"""Tests rmc_jax/envs/wrappers/auto_reset.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.envs import AutoReset
from rmc_jax.envs import make
from tests.envs.wrappers.games import Counter

ENV = AutoReset(Counter())
step = jax.jit(ENV.step)


def test_an_episode_that_ends_is_followed_by_another():
  state = first = ENV.reset(jax.random.key(0), 3)
  starts, steps, finals = [], [], []
  for t, action in enumerate([0, 0, 0, 0, 1, 1, 0]):
    state, outcome = step(jax.random.key(t), state, action, 3)
    starts.append(int(state.start))
    steps.append(int(state.step))
    finals.append(int(outcome.final_state.step))
    assert outcome.terminated == (action == 1)
    assert outcome.truncated == (t == 2)
    assert outcome.reward == finals[-1] / 2
  assert steps == [1, 2, 0, 1, 0, 0, 1]
  assert finals == [1, 2, 3, 1, 2, 1, 1]
  # The third, fifth and sixth actions end episodes.
  assert starts[:2] == [first.start] * 2
  assert starts[2] == starts[3]
  assert starts[5] == starts[6]
  assert len(set(starts)) == 4


def test_the_final_state_has_the_start_of_its_own_episode():
  state = ENV.reset(jax.random.key(0), 9)
  after, outcome = step(jax.random.key(1), state, 1, 9)
  assert outcome.final_state.start == state.start != after.start


def test_only_games_that_end_are_reset():
  keys = jax.random.split(jax.random.key(0), 4)
  states = jax.vmap(ENV.reset, (0, None))(keys, 9)
  actions = jnp.array([0, 1, 0, 1])
  after, outcome = jax.vmap(ENV.step, (0, 0, 0, None))(keys, states, actions, 9)
  assert after.step.tolist() == [1, 0, 1, 0]
  same = np.asarray(after.start == states.start)
  assert same.tolist() == [True, False, True, False]
  assert outcome.final_state.step.tolist() == [1] * 4


def test_a_final_observation_that_nobody_uses_costs_nothing():
  env, params = make('mini_pacman', view='full')
  env = AutoReset(env)

  def observe(uses_final, key, state):
    state, outcome = env.step(key, state, 0, params)
    last = env.observe(outcome.final_state, params) if uses_final else 0
    return env.observe(state, params), last

  state = env.reset(jax.random.key(0), params)
  flops = {
    uses_final: jax.jit(observe, static_argnums=0)
    .lower(uses_final, jax.random.key(0), state)
    .compile()
    .cost_analysis()['flops']
    for uses_final in (False, True)
  }
  assert flops[True] > flops[False] + 15 * 19 * 3


@pytest.mark.parametrize('name', ['mini_pacman', 'box_world'])
def test_games_start_afresh_at_their_limit(name):
  env, params = make(name, max_steps=4)
  env = AutoReset(env)
  state = env.reset(jax.random.key(0), params)
  for t in range(9):
    before = state
    state, outcome = jax.jit(env.step)(jax.random.key(t), state, 0, params)
    ended = outcome.terminated | outcome.truncated
    assert state.step == (0 if ended else before.step + 1)
    assert ended or outcome.final_state.step < 4
