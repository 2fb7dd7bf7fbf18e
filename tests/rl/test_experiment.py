"""Tests rmc_jax/rl/experiment.py: learning, resuming, several devices."""

import jax
import numpy as np
import optax
import pytest

from rmc_jax import metrics
from rmc_jax import rl
from rmc_jax import training
from tests.rl.agents import CORES
from tests.rl.agents import make_network
from tests.rl.recall import Recall

B, T = 16, 9


def long(state, _):
  return {'long': (state.length == 4, state.length > 0)}


def make_experiment(core='lstm', network=None, metrics_of=long, **run):
  env = Recall()
  return rl.make_experiment(
    network or make_network(env, core),
    env,
    rl.Curriculum([0.1]),
    agent=rl.AgentConfig(unroll_length=T, entropy_cost=0.01, discount=0.9),
    optimizer=optax.adam(0.01),
    batch_size=B,
    eval_episodes=50,
    eval_batch_size=20,
    metrics_of=metrics_of,
    run=training.RunConfig(**run),
  )


@pytest.mark.parametrize('core', CORES)
def test_agent_learns_a_memory_task(core):
  experiment = make_experiment(core, updates_per_call=50)
  state = training.parallel.place_state(jax.jit(experiment.init)())
  before = metrics.divide(experiment.evaluate(state))
  for _ in range(8):
    state, _ = experiment.update(state)
  after = metrics.divide(experiment.evaluate(state))
  assert before['episode_return'] < 0.6
  # All episodes but those that are truncated, a tenth.
  assert after['episode_return'] > 0.8
  # The same levels, with all lengths.
  assert before['long'] == after['long']
  assert 0 < after['long'] < 1
  assert 2 < after['episode_length'] < 5


def test_resumed_run_is_bitwise_equal(tmp_path):
  def train(folder, num_steps):
    run = training.RunConfig(
      num_steps=num_steps,
      updates_per_call=2,
      log_every=2,
      eval_every=4,
      checkpoint_every=2,
    )
    experiment = make_experiment(updates_per_call=2)
    return training.train(tmp_path / folder, experiment, run)

  whole = train('whole', 8)
  train('part', 4)
  resumed = train('part', 8)
  for x, y in zip(
    jax.tree.leaves(whole._replace(key=())),
    jax.tree.leaves(resumed._replace(key=())),
    strict=True,
  ):
    np.testing.assert_array_equal(x, y)


def test_first_update_is_the_same_on_two_devices():
  env, optimizer = Recall(), optax.adam(1e-3)
  network = make_network(env)
  agent = rl.AgentConfig(unroll_length=T)
  rollout = rl.make_rollout(network, env, rl.Curriculum([0.1]), agent=agent)
  results = []
  for devices in (jax.devices()[:1], jax.devices()[:2]):
    update = training.make_update(
      rl.make_loss_fn(network.apply, agent),
      optimizer,
      global_batch_size=B,
      make_batch=rollout.make_batch,
      reduction='sum',
      devices=devices,
    )
    state = training.parallel.place_state(make_experiment().init(), devices)
    state, metrics = update(state)
    seen = training.parallel.gather_carry(state).carry.inputs.observation
    results.append((metrics, seen))
  (one, seen), (two, seen_by_two) = results
  np.testing.assert_array_equal(seen, seen_by_two)
  for name in ('episode_return', 'episode_length'):
    np.testing.assert_array_equal(one[name], two[name])
  # The sums of two halves round differently from the sum of all.
  np.testing.assert_allclose(one['loss'][0], two['loss'][0], rtol=1e-4)


def test_metrics_cannot_replace_those_of_the_evaluation():
  def metrics_of(state, _):
    return {'episode_return': (state.step, state.step)}

  experiment = make_experiment(metrics_of=metrics_of)
  state = training.parallel.place_state(jax.jit(experiment.init)())
  with pytest.raises(ValueError, match="reports .'episode_return'.; rename"):
    experiment.evaluate(state)


def test_updates_and_evaluations_are_traced_once():
  env = Recall()
  network = make_network(env)
  traces = []

  def apply(*arguments):
    traces.append(1)
    return network.apply(*arguments)

  experiment = make_experiment(network=network._replace(apply=apply))
  state = training.parallel.place_state(experiment.init())
  for i in range(3):
    state, _ = experiment.update(state)
    experiment.evaluate(state)
    if i == 0:
      first = len(traces)
  assert len(traces) == first
