"""Tests rmc_jax/training/update.py: carry, make_batch and after_update."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rmc_jax.training import parallel
from rmc_jax.training.update import LossAux
from rmc_jax.training.update import make_step
from rmc_jax.training.update import make_update
from rmc_jax.training.update import per_example
from tests.training.small_update import B
from tests.training.small_update import loss_fn
from tests.training.small_update import make_batch
from tests.training.small_update import make_params
from tests.training.small_update import sample
from tests.training.small_update import start


def sum_inputs(params, network_state, carry, key, batch):
  """Doubles each example's carry and adds the sum of its inputs."""
  del key
  total = 2 * carry['sum'] + batch['x'].sum((1, 2))
  loss = (jax.tree.leaves(params)[0].sum() * total**2).sum()
  carry = {
    'sum': jax.lax.stop_gradient(total),
    'steps': carry['steps'] + 1,
  }
  return loss, LossAux(jnp.float32(len(total)), {}, network_state, carry)


def initial_carry():
  return {
    'sum': np.arange(B, dtype=np.float32),
    'steps': np.zeros((B, 2), np.int32),
  }


def expected_sums(seeds):
  sums = initial_carry()['sum']
  for seed in seeds:
    sums = 2 * sums + make_batch(seed)['x'].sum((1, 2))
  return sums


@pytest.mark.parametrize('num_devices', [1, 2, 4])
def test_carry_stays_with_its_examples(num_devices):
  devices, optimizer = jax.devices()[:num_devices], optax.sgd(0.0)
  update = make_update(
    sum_inputs, optimizer, global_batch_size=B, devices=devices
  )
  state = start(optimizer, devices, carry=initial_carry())
  for seed in range(3):
    batch = parallel.split_batch(make_batch(seed), devices)
    state, _ = update(state, batch)
  parallel.assert_replicated(state, devices)
  # Each device holds only its own rows.
  shapes = {shard.data.shape for shard in state.carry['sum'].addressable_shards}
  assert shapes == {(1, B // num_devices)}
  carry = parallel.gather_carry(state).carry
  # Rounding of sums of T * X numbers of order 1, doubled twice.
  np.testing.assert_allclose(
    carry['sum'], expected_sums(range(3)), rtol=1e-5, atol=1e-4
  )
  np.testing.assert_array_equal(carry['steps'], np.full((B, 2), 3))


def test_carry_can_be_gathered_and_placed_on_other_devices():
  state = start(optax.sgd(0.0), jax.devices()[:4], carry=initial_carry())
  gathered = parallel.gather_carry(state)
  chex.assert_trees_all_equal(gathered.carry, initial_carry())
  moved = parallel.place_state(gathered, jax.devices()[:2])
  assert moved.carry['sum'].shape == (2, B // 2)
  chex.assert_trees_all_equal(
    parallel.gather_carry(moved).carry, initial_carry()
  )


@pytest.mark.parametrize('make_key', [jax.random.key, jax.random.PRNGKey])
def test_gather_carry_keeps_keys(make_key):
  keys = jax.random.split(make_key(3), B)
  state = start(optax.sgd(0.0), carry={'key': keys})
  gathered = parallel.gather_carry(state).carry['key']
  assert gathered.dtype == keys.dtype
  assert (gathered == keys).all()


def test_carry_of_another_batch_size_raises():
  optimizer = optax.sgd(0.0)
  update = make_update(sum_inputs, optimizer, global_batch_size=B)
  carry = {'sum': np.zeros(2 * B), 'steps': np.zeros((2 * B, 2))}
  state = start(optimizer, carry=carry)
  with pytest.raises(ValueError, match=r"carry\['s.*needs 2 rows"):
    update(state, parallel.split_batch(make_batch(0)))


def test_carry_that_does_not_divide_raises():
  with pytest.raises(ValueError, match=f'{B + 1} does not divide'):
    start(optax.sgd(0.0), carry=np.zeros(B + 1))


def test_non_finite_update_advances_only_finite_carry_rows():
  optimizer = optax.sgd(1e-3)
  update = make_update(sum_inputs, optimizer, global_batch_size=B)
  state = start(optimizer, carry=initial_carry())
  before = jax.device_get(state.params)
  batch = make_batch(0)
  batch['x'][5] = np.nan
  state, metrics = update(state, parallel.split_batch(batch))
  assert metrics['nonfinite'] == (1, 1)
  chex.assert_trees_all_equal(jax.device_get(state.params), before)
  carry = parallel.gather_carry(state).carry
  rows = np.arange(B) != 5
  # Rounding of sums of T * X numbers of order 1.
  np.testing.assert_allclose(
    carry['sum'][rows], expected_sums([0])[rows], rtol=1e-5, atol=1e-5
  )
  assert carry['sum'][5] == 5
  np.testing.assert_array_equal(carry['steps'][:, 0], rows)


def environment(params, network_state, carry, key, index):
  """Makes a batch that depends on parameters, carry and example index."""
  del network_state
  noise = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(key, i)))
  position = carry['position'] + params['out'].sum() * noise(index)
  return {'position': position, 'index': index}, {'position': position}


def follow(params, network_state, carry, key, batch):
  del key
  loss = (params['out'][0] * batch['position'] ** 2).sum()
  metrics = {'index': (batch['index'].sum(), 1)}
  return loss, LossAux(
    jnp.float32(len(batch['index'])), metrics, network_state, carry
  )


def test_make_batch_sees_parameters_and_carry_on_any_number_of_devices():
  results = []
  for num_devices in (1, 2, 4):
    devices, optimizer = jax.devices()[:num_devices], optax.sgd(1e-2)
    update = make_update(
      follow,
      optimizer,
      global_batch_size=B,
      make_batch=environment,
      updates_per_call=3,
      devices=devices,
    )
    state = start(
      optimizer, devices, carry={'position': np.ones(B, np.float32)}
    )
    state, metrics = update(state)
    assert metrics['index'][0] == 3 * sum(range(B))
    results.append((state.params, parallel.gather_carry(state).carry))
  for other in results[1:]:
    # Float32 sums of B numbers of order 1 in another order, three updates.
    chex.assert_trees_all_close(results[0], other, rtol=1e-5)
  # The expected rollout, with the parameters of each update.
  params, position = jax.tree.map(jnp.asarray, make_params()), np.ones(B)
  for step in range(3):
    key = jax.random.fold_in(jax.random.key(1), step)
    batch, carry = environment(
      params, {}, {'position': position}, key, jnp.arange(B)
    )
    gradient = jax.grad(
      lambda p, batch=batch: follow(p, {}, (), None, batch)[0]
    )
    params = jax.tree.map(
      lambda p, g: p - 1e-2 * g / B, params, gradient(params)
    )
    position = carry['position']
  np.testing.assert_allclose(results[0][1]['position'], position, rtol=1e-5)


def test_loss_key_differs_from_the_keys_of_the_examples():
  keys = []

  def keep(params, network_state, carry, key, batch):
    jax.debug.callback(
      lambda *new: keys.extend(map(np.asarray, new)),
      jax.random.key_data(key)[None],
      batch,
    )
    return 0.0 * params['w'], LossAux(jnp.float32(1), {}, network_state, carry)

  optimizer = optax.sgd(1.0)
  update = make_update(
    keep,
    optimizer,
    global_batch_size=8,
    make_batch=per_example(lambda key, _: jax.random.key_data(key)),
  )
  update(start(optimizer, params={'w': jnp.float32(1)}))
  jax.effects_barrier()
  rows = np.concatenate(keys)
  assert len(rows) == 8 + 4
  assert len(np.unique(rows, axis=0)) == 8 + 4


def test_after_update_sees_the_metrics_of_the_global_batch():
  def record(network_state, metrics):
    del network_state
    return {
      'loss': metrics['loss'][0] / metrics['loss'][1],
      'tokens': metrics['tokens'][0],
    }

  optimizer, batch = optax.sgd(1e-2), make_batch(0)
  update = make_update(
    loss_fn, optimizer, global_batch_size=B, after_update=record
  )
  state = start(
    optimizer, network_state={'loss': np.float32(0), 'tokens': np.float32(0)}
  )
  state, metrics = update(state, parallel.split_batch(batch))
  assert state.network_state['tokens'] == batch['mask'].sum()
  assert state.network_state['loss'] == metrics['loss'][0] / metrics['loss'][1]
  parallel.assert_replicated(state)


def test_non_finite_update_undoes_after_update():
  def count(network_state, metrics):
    del metrics
    return {'updates': network_state['updates'] + 1}

  optimizer, batch = optax.sgd(1e-2), make_batch(0)
  update = make_update(
    loss_fn, optimizer, global_batch_size=B, after_update=count
  )
  state = start(optimizer, network_state={'updates': np.int32(0)})
  for scale in (1, np.nan, 1):
    scaled = batch | {'y': batch['y'] * np.float32(scale)}
    state, _ = update(state, parallel.split_batch(scaled))
  assert state.network_state['updates'] == 2
  assert state.step == 3


def test_sum_reduction_does_not_divide_by_the_weight():
  optimizer, batch = optax.sgd(1e-3), make_batch(0)
  update = make_update(loss_fn, optimizer, global_batch_size=B, reduction='sum')
  state, metrics = update(start(optimizer), parallel.split_batch(batch))

  def summed(params):
    return loss_fn(params, {}, (), None, batch)[0]

  gradient = jax.grad(summed)(make_params())
  expected = jax.tree.map(lambda p, g: p - 1e-3 * g, make_params(), gradient)
  # Float32 sums of a few dozen numbers of size 1 in another order.
  chex.assert_trees_all_close(
    jax.device_get(state.params), expected, rtol=2e-5, atol=1e-7
  )
  assert metrics['loss'][1] == batch['mask'].sum()
  np.testing.assert_allclose(
    metrics['gradient_norm'][0], optax.tree.norm(gradient), rtol=2e-5
  )


def test_step_without_an_axis_can_be_vmapped():
  optimizer = optax.adam(1e-2)
  step = make_step(
    loss_fn, optimizer, batch_size=B, make_batch=per_example(sample)
  )
  states = [
    start(optimizer, jax.devices()[:1])._replace(key=jax.random.key(seed))
    for seed in range(3)
  ]
  stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
  together, metrics = jax.jit(jax.vmap(step))(stacked)
  assert metrics['loss'][0].shape == (3,)
  for i, state in enumerate(states):
    alone, _ = jax.jit(step)(state)
    # Batched matrix products add in another order.
    chex.assert_trees_all_close(
      jax.tree.map(lambda leaf, i=i: leaf[i], together.params),
      alone.params,
      rtol=1e-5,
    )
