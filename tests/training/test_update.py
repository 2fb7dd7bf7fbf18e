"""Tests rmc_jax/training/update.py: reductions, keys, non-finite updates."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import parallel
from rmc_jax.training.state import create_state
from rmc_jax.training.update import LossAux
from rmc_jax.training.update import make_update
from rmc_jax.training.update import per_example
from tests.training.small_update import B
from tests.training.small_update import errors
from tests.training.small_update import loss_fn
from tests.training.small_update import make_batch
from tests.training.small_update import make_params
from tests.training.small_update import sample
from tests.training.small_update import start
from tests.training.small_update import T

# Float32 sums of a few dozen numbers of size 1, in another order on another
# number of devices, over a few updates that do not amplify the difference.
TOLERANCE = {'rtol': 2e-5, 'atol': 1e-7}


def run_on_host_batches(num_devices, batches, optimizer):
  devices = jax.devices()[:num_devices]
  update = make_update(loss_fn, optimizer, global_batch_size=B, devices=devices)
  state, history = start(optimizer, devices), []
  for batch in batches:
    state, metrics = update(state, parallel.split_batch(batch, devices))
    history.append(jax.device_get(metrics))
  parallel.assert_replicated(state, devices)
  return jax.device_get(state), history


def run_generated(num_devices, num_calls, updates_per_call, optimizer):
  devices = jax.devices()[:num_devices]
  update = make_update(
    loss_fn,
    optimizer,
    global_batch_size=B,
    make_batch=per_example(sample),
    updates_per_call=updates_per_call,
    devices=devices,
  )
  state, history = start(optimizer, devices), []
  for _ in range(num_calls):
    state, metrics = update(state)
    history.append(jax.device_get(metrics))
  parallel.assert_replicated(state, devices)
  return jax.device_get(state), history


def test_update_applies_the_gradient_of_the_global_mean():
  batch, params = make_batch(0), make_params()

  def mean(params):
    return (errors(params, batch) * batch['mask']).sum() / batch['mask'].sum()

  def mean_of_device_means(params):
    per_step = (errors(params, batch) * batch['mask']).reshape(4, -1).sum(1)
    counts = batch['mask'].reshape(4, -1).sum(1)
    return (per_step / jnp.maximum(counts, 1)).mean()

  state, (metrics,) = run_on_host_batches(4, [batch], optax.sgd(1e-2))
  loss, gradient = jax.value_and_grad(mean)(params)
  expected = jax.tree.map(lambda p, g: p - 1e-2 * g, params, gradient)
  chex.assert_trees_all_close(state.params, expected, **TOLERANCE)
  wrong = jax.tree.map(
    lambda p, g: p - 1e-2 * g, params, jax.grad(mean_of_device_means)(params)
  )
  with pytest.raises(AssertionError):
    chex.assert_trees_all_close(state.params, wrong, **TOLERANCE)

  np.testing.assert_allclose(
    metrics['loss'], (loss * 10, 10), rtol=TOLERANCE['rtol']
  )
  np.testing.assert_allclose(
    metrics['gradient_norm'],
    (np.sqrt(sum((g**2).sum() for g in gradient.values())), 1),
    rtol=TOLERANCE['rtol'],
  )
  assert metrics['tokens'] == (10, 4)  # Summed over the four devices.
  assert metrics['nonfinite'] == (0, 1)


def test_host_batches_match_on_any_number_of_devices():
  batches = [make_batch(seed) for seed in range(5)]
  optimizer = optax.chain(
    optax.clip_by_global_norm(1.0), optax.sgd(1e-2, momentum=0.9)
  )
  one, one_history = run_on_host_batches(1, batches, optimizer)
  for num_devices in (2, 4):
    many, many_history = run_on_host_batches(num_devices, batches, optimizer)
    assert one.step == many.step == 5
    chex.assert_trees_all_close(one.params, many.params, **TOLERANCE)
    chex.assert_trees_all_close(one.opt_state, many.opt_state, **TOLERANCE)
    for name in ('loss', 'gradient_norm'):
      np.testing.assert_allclose(
        [metrics[name] for metrics in one_history],
        [metrics[name] for metrics in many_history],
        **TOLERANCE,
      )


def test_generated_batches_match_on_any_number_of_devices():
  one, one_history = run_generated(1, 3, 2, optax.adam(1e-2))
  for num_devices in (2, 4):
    many, many_history = run_generated(num_devices, 3, 2, optax.adam(1e-2))
    assert one.step == many.step == 6
    chex.assert_trees_all_close(one.params, many.params, **TOLERANCE)
    for ours, theirs in zip(one_history, many_history, strict=True):
      # Masks are random, so equal counts mean equal examples.
      assert ours['loss'][1] == theirs['loss'][1]
      np.testing.assert_allclose(
        ours['loss'][0], theirs['loss'][0], rtol=TOLERANCE['rtol']
      )


def test_updates_per_call_matches_single_updates():
  single, singles = run_generated(2, 6, 1, optax.sgd(1e-2))
  several, calls = run_generated(2, 2, 3, optax.sgd(1e-2))
  assert single.step == several.step == 6
  chex.assert_trees_all_close(single.params, several.params, **TOLERANCE)
  for i, metrics in enumerate(calls):
    for name, pair in metrics.items():
      expected = np.sum(
        [step[name] for step in singles[3 * i : 3 * i + 3]], axis=0
      )
      np.testing.assert_allclose(pair, expected, rtol=TOLERANCE['rtol'])
  assert calls[0]['nonfinite'] == (0, 3)


def test_example_keys_depend_on_step_and_global_index():
  collected = []

  def keep(params, network_state, carry, key, batch):
    del key
    jax.debug.callback(lambda key: collected.append(np.asarray(key)), batch)
    aux = LossAux(jnp.float32(1), {}, network_state)
    return 0.0 * params['w'], aux

  optimizer = optax.sgd(1.0)
  update = make_update(
    keep,
    optimizer,
    global_batch_size=8,
    make_batch=per_example(lambda key, _: jax.random.key_data(key)),
    updates_per_call=2,
  )
  state, _ = update(start(optimizer, params={'w': jnp.float32(1)}))
  jax.effects_barrier()
  expected = [
    jax.random.key_data(
      jax.random.fold_in(jax.random.fold_in(jax.random.key(1), step), i)
    )
    for step in range(2)
    for i in range(8)
  ]
  assert state.step == 2
  assert {tuple(k) for keys in collected for k in keys.tolist()} == {
    tuple(k.tolist()) for k in expected
  }
  assert sum(len(keys) for keys in collected) == 16


@pytest.mark.parametrize('make_key', [jax.random.key, jax.random.PRNGKey])
def test_loss_key_differs_between_devices_and_steps(make_key):
  def noisy(params, network_state, carry, key, batch):
    del batch
    draw = jax.random.uniform(key)
    aux = LossAux(jnp.float32(1), {'draw': (draw, 1)}, network_state)
    return 0.0 * params['w'], aux

  optimizer, base = optax.sgd(1.0), make_key(5)
  update = make_update(noisy, optimizer, global_batch_size=4)
  state = parallel.place_state(
    create_state({'w': jnp.float32(1)}, {}, optimizer, base)
  )
  for step in range(2):
    state, metrics = update(state, parallel.split_batch(np.zeros(4)))
    step_key = jax.random.fold_in(base, step)
    draws = [
      jax.random.uniform(jax.random.fold_in(step_key, i)) for i in range(4)
    ]
    assert len({float(draw) for draw in draws}) == 4
    # A float32 sum of four numbers below 1, in any order.
    np.testing.assert_allclose(metrics['draw'][0], sum(draws), rtol=1e-6)
  assert (state.key == base).all()


@pytest.mark.parametrize('where', ['loss', 'gradient', 'weight', 'state'])
def test_non_finite_update_is_skipped(where):
  def broken(params, network_state, carry, key, batch):
    loss, aux = loss_fn(params, network_state, carry, key, batch)
    # At step 1, on one device.
    is_bad = batch['bad'].any()
    if where == 'loss':
      loss = jnp.where(is_bad, jnp.inf, loss)
    elif where == 'gradient':
      # The value of sqrt is finite at 0, its gradient is not.
      loss += jnp.sqrt(jnp.where(is_bad, 0.0, 1.0) * params['out'].sum() ** 2)
    elif where == 'weight':
      aux = aux._replace(weight=jnp.where(is_bad, jnp.nan, aux.weight))
    counted = network_state['seen'] + jnp.where(is_bad, jnp.nan, 1.0)
    return loss, aux._replace(network_state={'seen': counted})

  optimizer = optax.adam(1e-2)
  update = make_update(broken, optimizer, global_batch_size=B)
  state = start(optimizer, network_state={'seen': jnp.zeros(())})
  states, bad_counts = [jax.device_get(state)], []
  for step in range(3):
    bad = np.zeros(B, bool)
    bad[5] = step == 1
    batch = make_batch(step) | {'bad': bad}
    state, metrics = update(state, parallel.split_batch(batch))
    states.append(jax.device_get(state))
    bad_counts.append(tuple(map(int, metrics['nonfinite'])))
  assert bad_counts == [(0, 1), (1, 1), (0, 1)]
  chex.assert_trees_all_equal(
    states[2]._replace(step=states[1].step), states[1]
  )
  assert states[2].step == 2  # The next batch is used.
  assert states[3].network_state['seen'] == 2
  assert not np.array_equal(states[3].params['out'], states[2].params['out'])
  chex.assert_tree_all_finite(states[3].params)


def test_non_finite_parameter_change_is_skipped():
  def flat(params, network_state, carry, key, batch):
    loss, aux = loss_fn(params, network_state, carry, key, batch)
    return 0.0 * loss, aux

  batch = make_batch(0)
  # Without epsilon, Adam divides 0 by 0 for a gradient of 0.
  optimizer = optax.adam(1e-2, eps=0.0)
  update = make_update(flat, optimizer, global_batch_size=B)
  state = start(optimizer)
  before = jax.device_get(state)
  state, metrics = update(state, parallel.split_batch(batch))
  assert metrics['gradient_norm'][0] == 0
  assert metrics['nonfinite'] == (1, 1)
  chex.assert_trees_all_equal(
    jax.device_get(state), before._replace(step=state.step)
  )


def test_non_finite_update_within_a_call_is_counted():
  def broken(params, network_state, carry, key, batch):
    loss, aux = loss_fn(params, network_state, carry, key, batch)
    step = network_state['step'] + 1
    loss = jnp.where(step == 2, jnp.nan, loss)
    return loss, aux._replace(network_state={'step': step})

  optimizer = optax.sgd(1e-2)
  update = make_update(
    broken,
    optimizer,
    global_batch_size=B,
    make_batch=per_example(sample),
    updates_per_call=4,
  )
  state = start(optimizer, network_state={'step': jnp.zeros((), jnp.int32)})
  state, metrics = update(state)
  # The update from 1 to 2 is not finite, so the count stays at 1.
  assert metrics['nonfinite'] == (3, 4)
  assert state.step == 4
  assert state.network_state['step'] == 1
  assert np.isnan(metrics['loss'][0])


def test_batch_of_weight_zero_is_skipped():
  batch = make_batch(0) | {'mask': np.zeros((B, T), np.float32)}
  before = make_params()
  state, (metrics,) = run_on_host_batches(4, [batch], optax.sgd(1e-2))
  assert metrics['nonfinite'] == (1, 1)
  chex.assert_trees_all_equal(state.params, before)


def test_network_state_is_averaged_except_integers():
  def averaging(params, network_state, carry, key, batch):
    loss, aux = loss_fn(params, network_state, carry, key, batch)
    new = {
      'mean': batch['y'].mean(),
      'count': network_state['count'] + 1,
    }
    return loss, aux._replace(network_state=new)

  optimizer, batch = optax.sgd(1e-2), make_batch(0)
  update = make_update(averaging, optimizer, global_batch_size=B)
  state = start(
    optimizer,
    network_state={'mean': jnp.zeros(()), 'count': jnp.zeros((), jnp.int32)},
  )
  state, _ = update(state, parallel.split_batch(batch))
  # A float32 mean of 24 numbers below 10.
  np.testing.assert_allclose(
    state.network_state['mean'], batch['y'].mean(), rtol=1e-6
  )
  assert state.network_state['count'] == 1
  assert state.network_state['count'].dtype == jnp.int32
  parallel.assert_replicated(state)


def test_make_batch_sees_the_current_network_state():
  def level(key, network_state):
    del key
    return network_state['level']

  def climb(params, network_state, carry, key, batch):
    del key
    loss = 0.0 * params['w'] + batch.sum()
    next_state = {'level': network_state['level'] + 1.0}
    aux = LossAux(jnp.float32(batch.size), {'level': (loss, 1.0)}, next_state)
    return loss, aux

  optimizer = optax.sgd(1.0)
  update = make_update(
    climb,
    optimizer,
    global_batch_size=8,
    make_batch=per_example(level),
    updates_per_call=3,
  )
  state = start(
    optimizer,
    params={'w': jnp.float32(1)},
    network_state={'level': jnp.float32(5)},
  )
  state, metrics = update(state)
  assert float(metrics['level'][0]) == 8 * (5 + 6 + 7)
  state, metrics = update(state)
  assert float(metrics['level'][0]) == 8 * (8 + 9 + 10)


@pytest.mark.parametrize('generated', [False, True])
def test_updates_compile_once(generated):
  optimizer = optax.adam(1e-2)
  chex.clear_trace_counter()
  traced = chex.assert_max_traces(loss_fn, n=1)
  options = (
    {'make_batch': per_example(sample), 'updates_per_call': 2}
    if generated
    else {}
  )
  update = make_update(traced, optimizer, global_batch_size=B, **options)
  state = start(optimizer)
  for seed in range(3):
    batch = None if generated else parallel.split_batch(make_batch(seed))
    state, _ = update(state, batch)
  # Nor for a restored state.
  state = parallel.place_state(jax.device_get(state))
  update(state, batch)


def test_leaves_never_share_a_buffer():
  """Donating an average that starts as the weights must not crash."""
  params = jax.tree.map(jnp.asarray, make_params())
  optimizer = optax.chain(optax.sgd(1e-2), optax.ema(0.9))

  def averaging(params, network_state, carry, key, batch):
    loss, aux = loss_fn(params, network_state, carry, key, batch)
    return loss, aux._replace(network_state=params)

  update = make_update(averaging, optimizer, global_batch_size=B)
  state = start(optimizer, params=params, network_state=params)
  for seed in range(2):
    state, _ = update(state, parallel.split_batch(make_batch(seed)))
    pointers = [
      shard.data.unsafe_buffer_pointer()
      for leaf in jax.tree.leaves(state._replace(key=state.step))
      for shard in leaf.addressable_shards
    ]
    assert len(pointers) - len(set(pointers)) == 4  # `step` is listed twice.
  np.testing.assert_array_equal(params['out'], make_params()['out'])


def test_global_batch_that_does_not_divide_raises():
  with pytest.raises(ConfigurationError, match='batch of 10 .* 4 devices'):
    make_update(loss_fn, optax.sgd(1.0), global_batch_size=10)


def test_batch_of_another_size_raises():
  optimizer = optax.sgd(1.0)
  update = make_update(loss_fn, optimizer, global_batch_size=2 * B)
  with pytest.raises(
    ValueError, match=r'batch.* has shape \(2, .* needs 4 rows'
  ):
    update(start(optimizer), parallel.split_batch(make_batch(0)))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'updates_per_call': 0}, 'at least 1. Got: 0'),
    ({'updates_per_call': 2}, 'updates_per_call must be 1 .* Got: 2'),
    ({'reduction': 'max'}, "reduction must be one of mean, sum. Got: 'max'"),
  ],
)
def test_invalid_options_raise(options, message):
  with pytest.raises(ValueError, match=message):
    make_update(loss_fn, optax.sgd(1.0), global_batch_size=B, **options)


def test_missing_or_unexpected_batch_raises():
  optimizer = optax.sgd(1.0)
  from_host = make_update(loss_fn, optimizer, global_batch_size=B)
  with pytest.raises(ValueError, match='needs a batch'):
    from_host(start(optimizer))
  generated = make_update(
    loss_fn,
    optimizer,
    global_batch_size=B,
    make_batch=per_example(sample),
  )
  with pytest.raises(ValueError, match='make_batch makes it'):
    generated(start(optimizer), parallel.split_batch(make_batch(0)))


def test_metric_names_of_the_update_are_reserved():
  def clashing(params, network_state, carry, key, batch):
    loss, aux = loss_fn(params, network_state, carry, key, batch)
    return loss, aux._replace(metrics={'loss': (loss, aux.weight)})

  optimizer = optax.sgd(1.0)
  update = make_update(clashing, optimizer, global_batch_size=B)
  with pytest.raises(ValueError, match=r"\['loss'\]"):
    update(start(optimizer), parallel.split_batch(make_batch(0)))
