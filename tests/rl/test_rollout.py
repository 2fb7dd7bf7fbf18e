"""Tests rmc_jax/rl/rollout.py on an environment that needs memory."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import envs
from rmc_jax import rl
from rmc_jax.cores.build import build_core
from rmc_jax.cores.relational_memory import RelationalMemoryConfig
from tests.rl.agents import CORES
from tests.rl.agents import make_network
from tests.rl.agents import make_trajectory
from tests.rl.agents import random_params
from tests.rl.recall import LIMIT
from tests.rl.recall import Recall

B, T = 7, 23
TRUNCATED = 0.3  # share of episodes


def play(core='lstm', env=None, params=TRUNCATED, **options):
  env = Recall() if env is None else env
  network = make_network(env, core, **options)
  rollout = rl.Rollout(network.apply, env, lambda _: params, unroll_length=T)
  weights = random_params(network)
  return network, weights, *make_trajectory(network, rollout, weights, B)


def test_trajectories_match_the_environment():
  _, _, trajectory, carry, _ = play()
  env, inputs = Recall(), trajectory.inputs
  assert trajectory.terminated.any()
  assert trajectory.truncated.any()
  for b in range(B):
    game, ended, first, total, length = jax.tree.map(
      lambda leaf, b=b: leaf[b],
      (
        carry.game.game,
        carry.ended,
        carry.inputs.first,
        carry.game.episode_return,
        carry.game.episode_length,
      ),
    )
    for t in range(T):
      if game is not None:
        np.testing.assert_array_equal(
          inputs.observation[b, t], env.observe(game, TRUNCATED)
        )
      else:  # The first observation of an episode shows the cue.
        assert inputs.observation[b, t, 0, 0].sum() == 1
      assert inputs.first[b, t] == first
      action, reward = trajectory.actions[b, t], 0.0
      if ended:
        assert not trajectory.terminated[b, t]
        assert not trajectory.truncated[b, t]
        game, first, ended, total, length = None, True, False, 0.0, 0
        assert inputs.last_action[b, t + 1] == 0
      else:
        if game is None:
          cue = inputs.observation[b, t, 0, 0].argmax()
          # The length shows when the episode ends.
          rest = np.flatnonzero(trajectory.terminated[b, t:])[:1] + 1
          steps = rest[0] if rest.size and rest[0] <= LIMIT else 9
          game = type(carry.game.game)(
            cue, jnp.asarray(steps), jnp.zeros((), int)
          )
        game, outcome = env.step(None, game, action, TRUNCATED)
        reward = outcome.reward
        if t + LIMIT < T:  # Otherwise the episode may end after the sequence.
          assert trajectory.terminated[b, t] == outcome.terminated
          assert trajectory.truncated[b, t] == outcome.truncated
        ended = trajectory.terminated[b, t] | trajectory.truncated[b, t]
        first, total, length = False, total + reward, length + 1
        assert inputs.last_action[b, t + 1] == action
      assert trajectory.rewards[b, t] == reward
      assert inputs.last_reward[b, t + 1] == reward
      assert trajectory.returns[b, t] == total
      assert trajectory.lengths[b, t] == length


@pytest.mark.parametrize('core', CORES)
def test_learner_computes_the_logits_of_the_actor(core):
  network, params, trajectory, *_ = play(core, last_action_and_reward=True)
  inputs = jax.tree.map(lambda x: x.swapaxes(0, 1), trajectory.inputs)
  assert inputs.first[1:].any(axis=0).all()  # All have resets inside.
  output, _ = network.apply(params, inputs, trajectory.state)
  # Products of one step and of a sequence may round differently.
  np.testing.assert_allclose(
    output.logits[:-1].swapaxes(0, 1), trajectory.logits, atol=1e-5
  )
  never = inputs._replace(first=jnp.zeros_like(inputs.first))
  wrong, _ = network.apply(params, never, trajectory.state)
  assert np.abs(wrong.logits - output.logits).max() > 0.1


def test_learner_computes_the_logits_of_the_actor_in_bfloat16(monkeypatch):
  config = RelationalMemoryConfig(mem_slots=3, head_size=5, num_heads=2)
  narrow = dataclasses.replace(config, compute_dtype='bfloat16')
  monkeypatch.setitem(CORES, 'float32', lambda: build_core(config))
  monkeypatch.setitem(CORES, 'bfloat16', lambda: build_core(narrow))
  network, params, trajectory, *_ = play('bfloat16')
  inputs = jax.tree.map(lambda x: x.swapaxes(0, 1), trajectory.inputs)

  def difference(network):
    output, _ = network.apply(params, inputs, trajectory.state)
    logits = output.logits[:-1].swapaxes(0, 1)
    return np.abs(logits - trajectory.logits).max()

  # A sum that rounds differently in float32 may round to another number in
  # bfloat16, 2^-8 away for factors of order 1. In float32 all factors differ.
  assert difference(network) < 4e-3
  assert difference(make_network(Recall(), 'float32')) > 1e-2


def test_actions_follow_the_logits():
  *_, trajectory, _, _ = play()
  probabilities = jax.nn.softmax(trajectory.logits).reshape(-1, 3)
  chosen = np.eye(3)[trajectory.actions.reshape(-1)]
  error = np.sqrt((probabilities * (1 - probabilities)).sum(0))
  # Four standard deviations of a sum of independent choices.
  assert (np.abs((chosen - probabilities).sum(0)) < 4 * error).all()
  assert (chosen.sum(0) > 0).all()


def test_next_unroll_continues_the_last():
  _, _, trajectory, carry, after = play()

  def at(t):
    return jax.tree.map(lambda x: x[:, t], trajectory.inputs)

  jax.tree.map(
    np.testing.assert_array_equal,
    (carry.inputs, after.inputs, carry.core),
    (at(0), at(-1), trajectory.state),
  )


def test_examples_are_independent_of_sharding():
  # So that a run is the same on any number of devices.
  env = Recall()
  network = make_network(env)
  params = random_params(network)
  rollout = rl.Rollout(network.apply, env, lambda _: TRUNCATED, unroll_length=T)
  core = network.initial_state(params, B)
  carry = rollout.init(jax.random.key(3), {}, core, B)
  make_batch = jax.jit(rollout.make_batch)
  whole, _ = make_batch(params, {}, carry, jax.random.key(4), jnp.arange(B))
  rows = slice(2, 6)
  part, _ = make_batch(
    params,
    {},
    jax.tree.map(lambda x: x[rows], carry),
    jax.random.key(4),
    jnp.arange(B)[rows],
  )
  np.testing.assert_array_equal(part.actions, whole.actions[rows])
  np.testing.assert_array_equal(
    part.inputs.observation, whole.inputs.observation[rows]
  )


@pytest.mark.parametrize('game', ['box_world', 'mini_pacman'])
def test_games_start_new_levels(game):
  env, params = envs.make(game, max_steps=5)
  _, _, trajectory, *_ = play(
    env=env, params=params, channels=(3,), coordinates='view'
  )
  assert trajectory.inputs.observation.shape[:3] == (B, T + 1, 5)
  starts = trajectory.inputs.observation[trajectory.inputs.first]
  assert len(starts) >= 2 * B
  assert len(np.unique(np.asarray(starts), axis=0)) > B
