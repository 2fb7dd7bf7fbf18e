"""Tests rmc_jax/training/parallel.py on four CPU devices."""

import chex
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
import numpy as np
import optax
import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import parallel
from rmc_jax.training.state import create_state
from tests.training.replicas import with_flipped_bit


def make_state(key=None):
  params = {
    'w': jnp.arange(6.0).reshape(2, 3),
    'half': jnp.arange(5, dtype=jnp.bfloat16),
    'mask': jnp.array([True, False, True]),
  }
  key = jax.random.key(7) if key is None else key
  return create_state(params, {}, optax.adam(1e-3), key)


def count(state, batch):
  """A step that adds up its batch over all devices."""
  total = jax.lax.psum(batch.sum(), parallel.AXIS)
  return state._replace(step=state.step + 1), {'sum': (total, 1)}


def buffer_pointers(tree):
  """One for each leaf and device; a shared buffer appears twice."""
  arrays = [
    jax.random.key_data(leaf)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    else leaf
    for leaf in jax.tree.leaves(tree)
  ]
  return [
    shard.data.unsafe_buffer_pointer()
    for array in arrays
    for shard in array.addressable_shards
  ]


@pytest.mark.parametrize('num_devices', [1, 4])
def test_placing_replicates_and_leaves_the_callers_arrays_alone(num_devices):
  devices = jax.devices()[:num_devices]
  state = make_state()
  # An average that starts as the weights: one buffer, two leaves.
  state = state._replace(network_state={'ema': state.params['w']})
  placed = parallel.place_state(state, devices)
  for leaf in jax.tree.leaves(placed):
    assert leaf.sharding.is_fully_replicated
    assert leaf.sharding.device_set == set(devices)
  pointers = buffer_pointers(placed)
  assert len(set(pointers)) == len(pointers)
  assert not set(pointers) & set(buffer_pointers(state))

  update = parallel.parallel_update(count, devices)
  batch = parallel.split_batch(np.ones((8, 3)), devices)
  after, metrics = update(placed, batch)
  assert metrics['sum'][0] == 24
  assert after.step == 1
  # Donated, or the state would take its memory twice.
  assert placed.params['w'].is_deleted()
  # The originals can still be read.
  np.testing.assert_array_equal(state.params['w'], after.params['w'])
  assert state.key == after.key


def test_updates_can_follow_one_another_and_be_placed_again():
  update = parallel.parallel_update(count)
  batch = parallel.split_batch(np.ones((4, 1)))
  state, _ = update(parallel.place_state(make_state()), batch)
  state, _ = update(state, batch)
  state, _ = update(parallel.place_state(jax.device_get(state)), batch)
  assert state.step == 3


def test_split_gives_each_device_neighbouring_examples():
  batch = {'x': np.arange(24).reshape(12, 2), 'y': np.arange(12)}
  split = parallel.split_batch(batch)
  assert split['x'].shape == (4, 3, 2)
  assert split['y'].shape == (4, 3)
  for i, shard in enumerate(split['y'].addressable_shards):
    np.testing.assert_array_equal(shard.data[0], [3 * i, 3 * i + 1, 3 * i + 2])


def test_a_local_batch_that_does_not_divide_is_refused_with_both_numbers():
  with pytest.raises(ValueError, match=r'of 10 .* the 4 devices.*8 or 12'):
    parallel.split_batch(np.zeros((10, 2)))


@pytest.mark.parametrize(
  'batch', [{}, {'x': np.zeros(8), 'y': np.zeros(4)}, np.zeros(())]
)
def test_a_batch_without_one_size_is_refused(batch):
  with pytest.raises(ValueError, match='same leading axis'):
    parallel.split_batch(batch)


def test_a_global_batch_that_does_not_divide_is_refused_with_both_numbers():
  assert parallel.per_device_batch_size(12) == 3
  with pytest.raises(
    ConfigurationError,
    match=r'batch of 10 does not divide over 4 devices .*1 x 4.* 8 or 12\.',
  ):
    parallel.per_device_batch_size(10)
  with pytest.raises(ConfigurationError, match=r'of 3 .*such as 4\.'):
    parallel.per_device_batch_size(3)
  with pytest.raises(ConfigurationError, match='positive, got 0'):
    parallel.per_device_batch_size(0)


class FakeDevice:
  """Of another process, for arithmetic only."""

  def __init__(self, process_index):
    self.process_index = process_index


def test_processes_count_in_the_division():
  job = [FakeDevice(process) for process in (1, 0, 1, 0, 1, 0)]
  assert parallel.per_device_batch_size(18, job) == 3
  assert parallel.process_rows(18, job) == slice(0, 9)  # This is process 0.
  with pytest.raises(ConfigurationError, match='over 6 devices .*2 x 3'):
    parallel.per_device_batch_size(20, job)
  with pytest.raises(ConfigurationError, match=r'number of devices.*\[2, 3\]'):
    parallel.per_device_batch_size(20, job[:-1])


@pytest.mark.parametrize('shape', [(3, 2), (8, 2), ()])
def test_a_batch_not_split_for_these_devices_is_refused(shape):
  update = parallel.parallel_update(count)
  with pytest.raises(ValueError, match='split_batch'):
    update(parallel.place_state(make_state()), np.zeros(shape))


def test_a_state_not_placed_on_these_devices_is_refused():
  update = parallel.parallel_update(count)
  batch = parallel.split_batch(np.zeros((4, 1)))
  with pytest.raises(ValueError, match='place_state'):
    update(make_state(), batch)
  elsewhere = parallel.place_state(make_state(), jax.devices()[:2])
  with pytest.raises(ValueError, match='4 local devices'):
    update(elsewhere, batch)


@pytest.mark.parametrize('make_key', [jax.random.key, jax.random.PRNGKey])
@pytest.mark.parametrize('name', ['w', 'half', 'mask'])
@pytest.mark.parametrize('replica', [0, 3])
def test_one_flipped_bit_on_one_replica_is_noticed(make_key, name, replica):
  state = parallel.place_state(make_state(make_key(0)))
  parallel.assert_replicated(state)
  array = state.params[name]
  broken = with_flipped_bit(array, replica)
  if replica:
    # Reading shows nothing: it is replica 0 that is read.
    np.testing.assert_array_equal(broken, array)
  params = state.params | {name: broken}
  with pytest.raises(RuntimeError, match=f"params.*{name}'") as error:
    parallel.assert_replicated(state._replace(params=params))
  assert 'opt_state' not in str(error.value)


def test_the_fingerprint_is_the_sum_of_the_bits():
  words = np.array([1.5, -2.0, 3e-9], np.float32)
  tree = parallel.place_state({'a': words, 'b': np.uint8([250, 251])})
  low, high = parallel.replica_fingerprint(tree)
  expected = [words.view(np.uint32).sum(dtype=np.uint32), 501]
  np.testing.assert_array_equal(low, expected)
  np.testing.assert_array_equal(high, expected)


def test_checking_again_does_not_compile_again(caplog):
  state = parallel.place_state(make_state())
  parallel.assert_replicated(state)
  with jax.log_compiles():
    parallel.assert_replicated(state)
    assert not caplog.messages
    jax.jit(lambda x: x + 1)(jnp.ones(3))  # The log does show compilations.
    assert caplog.messages


def test_sums_run_over_devices():
  total = parallel.parallel_sum(
    lambda replicated, share: {'sum': replicated * share.sum()}
  )
  result = total(
    parallel.place_state(jnp.float32(2)),
    parallel.split_batch(np.arange(12.0)),
  )
  assert result['sum'] == 2 * 66
  assert isinstance(result['sum'].sharding, NamedSharding)


@pytest.mark.parametrize('processes', [1, 2])
def test_psum_adds_up_every_leaf_whatever_its_dtype(monkeypatch, processes):
  monkeypatch.setattr(parallel.jax, 'process_count', lambda: processes)
  devices = jax.device_count()
  share = {
    'large': 2**24 + 1 + np.arange(devices, dtype=np.int32)[:, None],
    'a': np.arange(devices * 6, dtype=np.float32).reshape(devices, 2, 3),
    'b': [np.full((devices,), 0.5, np.float32)],
    'half': np.ones((devices, 5), jnp.bfloat16),
    'mask': np.arange(devices * 3).reshape(devices, 3) % 2 == 0,
  }
  total = jax.jit(
    jax.shard_map(
      lambda x: parallel.psum(
        {'one': 1} | jax.tree.map(lambda leaf: leaf[0], x)
      ),
      mesh=jax.sharding.Mesh(np.array(jax.devices()), (parallel.AXIS,)),
      in_specs=jax.P(parallel.AXIS),
      out_specs=jax.P(),
      check_vma=False,
    )
  )
  found = total(share)
  assert found.pop('one') == devices
  assert found['mask'].dtype == jnp.int32
  share['mask'] = share['mask'].astype(np.int32)
  chex.assert_trees_all_equal(
    found, jax.tree.map(lambda leaf: leaf.sum(0, leaf.dtype), share)
  )


def test_processes_on_cpus_exchange_one_array_a_dtype(monkeypatch):
  monkeypatch.setattr(parallel.jax, 'process_count', lambda: 2)
  share = [np.ones((4, 2, 3), np.float32), np.ones((4, 5), np.float32)]
  share += [np.ones((4, 7), np.int32)]
  mesh = jax.sharding.Mesh(np.array(jax.devices()), (parallel.AXIS,))
  total = jax.jit(
    jax.shard_map(
      parallel.psum,
      mesh=mesh,
      in_specs=jax.P(parallel.AXIS),
      out_specs=jax.P(),
      check_vma=False,
    )
  )
  assert total.lower(share).as_text().count('all_reduce') == 2
