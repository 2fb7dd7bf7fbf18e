"""Tests rmc_jax/rl/policy_lag.py in training."""

import jax
import numpy as np
import optax
import pytest

from rmc_jax import rl
from rmc_jax import training
from tests.rl.agents import make_network
from tests.rl.recall import Recall

B, T, LAG = 4, 5, 2


@pytest.mark.parametrize('lag', [0, 1, LAG])
def test_actors_have_the_parameters_of_some_updates_ago(lag):
  env = Recall()
  network = make_network(env)
  seen = []

  def loss_fn(params, network_state, carry, key, batch):
    jax.debug.callback(lambda logits: seen.append(logits), batch.logits)
    loss_fn = rl.make_loss_fn(network.apply, rl.AgentConfig(policy_lag=lag))
    return loss_fn(params, network_state, carry, key, batch)

  experiment = rl.make_experiment(
    network,
    env,
    rl.Curriculum([0.3]),
    agent=rl.AgentConfig(unroll_length=T, policy_lag=lag),
    optimizer=optax.sgd(0.1),
    batch_size=B,
    eval_episodes=4,
    eval_batch_size=4,
    run=training.RunConfig(),
  )
  one = jax.devices()[:1]
  rollout = rl.Rollout(network.apply, env, lambda _: 0.3, unroll_length=T)
  update = training.make_update(
    loss_fn,
    optax.sgd(0.1),
    global_batch_size=B,
    make_batch=rollout.make_batch,
    reduction='sum',
    devices=one,
  )
  state = training.parallel.place_state(experiment.init(), one)
  history = []
  for step in range(LAG + 3):
    params = jax.device_get(state.params)
    history.append(params)
    carry = jax.tree.map(lambda leaf: leaf[0], state.carry)
    key = jax.random.fold_in(state.key, step)
    acting = history[max(0, step - lag)]
    expected, _ = jax.jit(rollout.make_batch)(
      acting, {}, carry, key, np.arange(B)
    )
    state, _ = update(state)
    jax.effects_barrier()
    # One program on the device, another here.
    np.testing.assert_allclose(seen[-1], expected.logits, atol=1e-5)
    if step and lag:
      fresh, _ = rollout.make_batch(params, {}, carry, key, np.arange(B))
      assert np.abs(fresh.logits - expected.logits).max() > 1e-4
