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
from rmc_jax.training.update import LossAux
from rmc_jax.training.update import make_update
from rmc_jax.training.update import per_example
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
  """Sums the batch over all devices."""
  total = jax.lax.psum(batch.sum(), parallel.AXIS)
  return state._replace(step=state.step + 1), {'sum': (total, 1)}


def buffer_pointers(tree):
  """Returns the buffer pointer of every leaf on every device."""
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
def test_place_state_replicates_and_copies(num_devices):
  devices = jax.devices()[:num_devices]
  state = make_state()
  # An average that starts as the weights shares their buffer.
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
  # The state is donated.
  assert placed.params['w'].is_deleted()
  # The originals can still be read.
  np.testing.assert_array_equal(state.params['w'], after.params['w'])
  assert state.key == after.key


def test_updated_state_can_be_placed_again():
  update = parallel.parallel_update(count)
  batch = parallel.split_batch(np.ones((4, 1)))
  state, _ = update(parallel.place_state(make_state()), batch)
  state, _ = update(state, batch)
  state, _ = update(parallel.place_state(jax.device_get(state)), batch)
  assert state.step == 3


def test_split_batch_gives_each_device_adjacent_examples():
  batch = {'x': np.arange(24).reshape(12, 2), 'y': np.arange(12)}
  split = parallel.split_batch(batch)
  assert split['x'].shape == (4, 3, 2)
  assert split['y'].shape == (4, 3)
  for i, shard in enumerate(split['y'].addressable_shards):
    np.testing.assert_array_equal(shard.data[0], [3 * i, 3 * i + 1, 3 * i + 2])


def test_local_batch_that_does_not_divide_raises():
  with pytest.raises(ValueError, match=r'of 10 .* the 4 devices.*8 or 12'):
    parallel.split_batch(np.zeros((10, 2)))


@pytest.mark.parametrize(
  'batch', [{}, {'x': np.zeros(8), 'y': np.zeros(4)}, np.zeros(())]
)
def test_empty_or_inconsistent_batch_raises(batch):
  with pytest.raises(ValueError, match='same leading axis'):
    parallel.split_batch(batch)


def test_global_batch_that_does_not_divide_raises():
  assert parallel.per_device_batch_size(12) == 3
  with pytest.raises(
    ConfigurationError,
    match=r'batch of 10 does not divide over 4 devices .*1 x 4.* 8 or 12\.',
  ):
    parallel.per_device_batch_size(10)
  with pytest.raises(ConfigurationError, match=r'of 3 .*such as 4\.'):
    parallel.per_device_batch_size(3)
  with pytest.raises(ConfigurationError, match='at least 1. Got: 0'):
    parallel.per_device_batch_size(0)


class FakeDevice:
  """A device of another process."""

  def __init__(self, process_index):
    self.process_index = process_index


def test_batch_divides_over_all_processes():
  job = [FakeDevice(process) for process in (1, 0, 1, 0, 1, 0)]
  assert parallel.per_device_batch_size(18, job) == 3
  assert parallel.process_rows(18, job) == slice(0, 9)  # Of process 0.
  with pytest.raises(ConfigurationError, match='over 6 devices .*2 x 3'):
    parallel.per_device_batch_size(20, job)
  with pytest.raises(ConfigurationError, match=r'number of devices.*\[2, 3\]'):
    parallel.per_device_batch_size(20, job[:-1])


@pytest.mark.parametrize('shape', [(3, 2), (8, 2), ()])
def test_batch_not_split_for_these_devices_raises(shape):
  update = parallel.parallel_update(count)
  with pytest.raises(ValueError, match='split_batch'):
    update(parallel.place_state(make_state()), np.zeros(shape))


def test_state_not_placed_on_these_devices_raises():
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
def test_flipped_bit_on_one_replica_raises(make_key, name, replica):
  state = parallel.place_state(make_state(make_key(0)))
  parallel.assert_replicated(state)
  array = state.params[name]
  broken = with_flipped_bit(array, replica)
  if replica:
    # NumPy reads replica 0, which is unchanged.
    np.testing.assert_array_equal(broken, array)
  params = state.params | {name: broken}
  with pytest.raises(RuntimeError, match=f"params.*{name}'") as error:
    parallel.assert_replicated(state._replace(params=params))
  assert 'opt_state' not in str(error.value)


def test_fingerprint_is_the_sum_of_words():
  words = np.array([1.5, -2.0, 3e-9], np.float32)
  tree = parallel.replicate({'a': words, 'b': np.uint8([250, 251])})
  low, high = parallel.replica_fingerprint(tree)
  expected = [words.view(np.uint32).sum(dtype=np.uint32), 501]
  np.testing.assert_array_equal(low, expected)
  np.testing.assert_array_equal(high, expected)


def test_assert_replicated_compiles_once(caplog):
  state = parallel.place_state(make_state())
  parallel.assert_replicated(state)
  with jax.log_compiles():
    parallel.assert_replicated(state)
    assert not caplog.messages
    jax.jit(lambda x: x + 1)(jnp.ones(3))  # Compilations are logged.
    assert caplog.messages


def test_parallel_map_sums_over_devices():
  total = parallel.parallel_map(
    lambda replicated, carry, batch: ({'sum': replicated * batch.sum()}, carry)
  )
  result, _ = total(
    parallel.replicate(jnp.float32(2)),
    (),
    parallel.split_batch(np.arange(12.0)),
  )
  assert result['sum'] == 2 * 66
  assert isinstance(result['sum'].sharding, NamedSharding)


@pytest.mark.parametrize('processes', [1, 2])
def test_psum_of_every_dtype(monkeypatch, processes):
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


def test_psum_on_cpus_reduces_one_array_per_dtype(monkeypatch):
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


def shard_map_over_devices(fn, devices, donate):
  """`parallel._map_over_devices` by `jax.shard_map` instead of `jax.pmap`."""
  mesh = jax.sharding.Mesh(np.array(devices), (parallel.AXIS,))
  rows = jax.P(parallel.AXIS)

  def on_device(replicated, carry, batch):
    carry, batch = jax.tree.map(lambda leaf: leaf[0], (carry, batch))
    replicated, carry = fn(replicated, carry, batch)
    return replicated, jax.tree.map(lambda leaf: leaf[None], carry)

  return jax.jit(
    jax.shard_map(
      on_device,
      mesh=mesh,
      in_specs=(jax.P(), rows, rows),
      out_specs=(jax.P(), rows),
      check_vma=False,
    ),
    donate_argnums=(0, 1) if donate else (),
  )


def test_shard_map_matches_pmap_bit_for_bit(monkeypatch):
  def loss_fn(params, network_state, carry, key, batch):
    noise = jax.random.normal(key, batch.shape)
    hidden = jnp.tanh((batch + noise) @ params['w'] + carry)
    return (hidden**2).sum(), LossAux(
      jnp.float32(len(batch)),
      {'largest': (hidden.max(), 1)},
      {'mean': hidden.mean()},
      jax.lax.stop_gradient(hidden),
    )

  def train():
    optimizer = optax.adam(1e-2)
    update = make_update(
      loss_fn,
      optimizer,
      global_batch_size=12,
      make_batch=per_example(lambda key, _: jax.random.normal(key, (3,))),
      updates_per_call=2,
    )
    state = parallel.place_state(
      create_state(
        {'w': jnp.linspace(-1.0, 1.0, 15).reshape(3, 5)},
        {'mean': jnp.zeros(())},
        optimizer,
        jax.random.key(3),
        carry=jnp.zeros((12, 5)),
      )
    )
    history = []
    for _ in range(3):
      state, metrics = update(state)
      history.append(jax.device_get(metrics))
    state = parallel.gather_carry(state)._replace(key=())
    return jax.device_get((state, history))

  with_pmap = train()
  monkeypatch.setattr(parallel, '_map_over_devices', shard_map_over_devices)
  chex.assert_trees_all_equal(train(), with_pmap)
