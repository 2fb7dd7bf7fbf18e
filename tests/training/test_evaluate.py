"""Tests rmc_jax/training/evaluate.py."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rmc_jax import metrics
from rmc_jax.errors import ConfigurationError
from rmc_jax.training import evaluate as evaluate_lib
from rmc_jax.training import parallel
from rmc_jax.training.state import create_state

B = 8  # A multiple of the four devices, unlike most split sizes below.


def make_state(devices=None):
  state = create_state(
    {'scale': jnp.float32(2)},
    {'shift': jnp.float32(1)},
    optax.sgd(1.0),
    jax.random.key(0),
  )
  return parallel.place_state(state, devices)


def metric_fn(params, network_state, batch):
  """Returns weighted sums, different for every example, [B] and [B]."""
  values = batch['x'].sum(-1) * params['scale'] + network_state['shift']
  return {
    'value': (values * batch['weight'], batch['weight']),
    'examples': (jnp.ones_like(values), jnp.ones_like(values)),
  }


def make_examples(size):
  rng = np.random.default_rng(size)
  return {
    'x': rng.normal(size=(size, 3)).astype(np.float32),
    'weight': rng.uniform(1, 2, size=size).astype(np.float32),
  }


@pytest.mark.parametrize('num_devices', [1, 4])
@pytest.mark.parametrize('size', [1, 7, 8, 13])
def test_every_example_counts_once(size, num_devices):
  devices = jax.devices()[:num_devices]
  examples = make_examples(size)
  evaluate = evaluate_lib.make_evaluate(
    metric_fn, examples, global_batch_size=B, devices=devices
  )
  sums = evaluate(make_state(devices))
  values = 2 * examples['x'].astype(np.float64).sum(-1) + 1
  # Float32 sums of at most 13 numbers of size 1.
  np.testing.assert_allclose(
    sums['value'],
    ((values * examples['weight']).sum(), examples['weight'].sum()),
    rtol=2e-6,
  )
  assert sums['examples'] == (size, size)
  assert metrics.divide(sums)['examples'] == 1.0


def test_metrics_may_be_arrays():
  x = np.random.default_rng(0).normal(size=(13, 3, 2)).astype(np.float32)
  evaluate = evaluate_lib.make_evaluate(
    lambda params, network_state, batch: {
      'x': (batch * params['scale'], jnp.ones_like(batch))
    },
    x,
    global_batch_size=B,
  )
  sums = evaluate(make_state())
  # Float32 sums of 13 numbers of size 1.
  np.testing.assert_allclose(sums['x'][0], 2 * x.sum(0), rtol=2e-6, atol=2e-6)
  np.testing.assert_array_equal(sums['x'][1], np.full((3, 2), 13))
  np.testing.assert_allclose(
    metrics.divide(sums)['x'], 2 * x.mean(0), rtol=2e-6, atol=2e-7
  )


def sample(key):
  drawn = jax.random.uniform(key, (4,))
  return {'x': drawn[:3], 'weight': drawn[3]}


@pytest.mark.parametrize('num_devices', [1, 4])
def test_generated_examples_get_keys_by_index(num_devices):
  devices = jax.devices()[:num_devices]
  evaluate = evaluate_lib.make_evaluate_generated(
    metric_fn,
    sample,
    jax.random.key(5),
    num_examples=13,
    global_batch_size=B,
    devices=devices,
  )
  keys = [jax.random.fold_in(jax.random.key(5), i) for i in range(13)]
  examples = jax.tree.map(lambda *leaves: np.stack(leaves), *map(sample, keys))
  values = (2 * examples['x'].sum(-1) + 1) * examples['weight']
  sums = evaluate(make_state(devices))
  # Float32 sums of 13 numbers of size 1.
  np.testing.assert_allclose(
    sums['value'], (values.sum(), examples['weight'].sum()), rtol=2e-6
  )
  assert sums['examples'] == (13, 13)


def test_dropped_last_batch_raises(monkeypatch):
  monkeypatch.setattr(
    evaluate_lib,
    'range',
    lambda first, size, batch: range(first, size - size % batch, batch),
    raising=False,
  )
  evaluate = evaluate_lib.make_evaluate(
    metric_fn, make_examples(13), global_batch_size=B
  )
  with pytest.raises(RuntimeError, match='counted 8 .* split of 13'):
    evaluate(make_state())


def test_metric_of_padding_may_be_nan():
  def fragile(params, network_state, batch):
    del params, network_state
    # With two examples per device, the last two devices hold padding only.
    is_padding = jax.lax.axis_index(parallel.AXIS) >= 2
    values = jnp.where(is_padding, jnp.nan, batch)
    return {'value': (values, jnp.ones_like(values))}

  evaluate = evaluate_lib.make_evaluate(
    fragile, np.float32([2, 3, 4]), global_batch_size=B
  )
  assert evaluate(make_state())['value'] == (9, 3)


def test_evaluate_compiles_once_and_keeps_the_state():
  chex.clear_trace_counter()
  evaluate = evaluate_lib.make_evaluate(
    chex.assert_max_traces(metric_fn, n=1),
    make_examples(13),
    global_batch_size=B,
  )
  state = make_state()
  assert evaluate(state) == evaluate(state)
  assert state.params['scale'] == 2


def test_metric_summed_over_the_batch_raises():
  def summed(params, network_state, batch):
    pairs = metric_fn(params, network_state, batch)
    return {name: (s.sum(), c.sum()) for name, (s, c) in pairs.items()}

  evaluate = evaluate_lib.make_evaluate(
    summed, make_examples(13), global_batch_size=B
  )
  with pytest.raises(ValueError, match=r"2 examples.*'value': \[\(\), \(\)\]"):
    evaluate(make_state())


def test_sums_and_counts_of_different_shapes_raise():
  def uneven(params, network_state, batch):
    del params, network_state
    return {'x': (batch['x'], batch['weight'])}

  evaluate = evaluate_lib.make_evaluate(
    uneven, make_examples(13), global_batch_size=B
  )
  with pytest.raises(ValueError, match=r"'x': \[\(2, 3\), \(2,\)\]"):
    evaluate(make_state())


@pytest.mark.parametrize(
  'examples', [{}, np.zeros((0, 3)), {'x': np.zeros(3), 'y': np.zeros(4)}]
)
def test_empty_or_inconsistent_split_raises(examples):
  with pytest.raises(ValueError, match='same leading axis'):
    evaluate_lib.make_evaluate(metric_fn, examples, global_batch_size=B)


def test_batch_that_does_not_divide_raises():
  with pytest.raises(ConfigurationError, match='batch of 10 .* 4 devices'):
    evaluate_lib.make_evaluate(
      metric_fn, make_examples(20), global_batch_size=10
    )
