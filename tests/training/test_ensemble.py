"""Tests rmc_jax/training/ensemble.py against members trained alone."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import parallel
from rmc_jax.training.ensemble import create_ensemble
from rmc_jax.training.ensemble import get_member
from rmc_jax.training.ensemble import make_ensemble_update
from rmc_jax.training.state import create_state
from rmc_jax.training.update import make_update
from rmc_jax.training.update import per_example
from tests.training.small_update import B
from tests.training.small_update import loss_fn
from tests.training.small_update import make_batch
from tests.training.small_update import sample
from tests.training.small_update import X

MEMBERS = 8
# Batched matrix products sum in another order than single ones, which Adam
# amplifies in the first updates.
TOLERANCE = {'rtol': 1e-5, 'atol': 1e-6}


def init_member(seed):
  key = jax.random.key(seed)
  params = {
    'hidden': jax.random.normal(jax.random.fold_in(key, 1), (X, 7)),
    'out': jax.random.normal(jax.random.fold_in(key, 2), (7,)),
  }
  return create_state(params, {}, optax.adam(1e-2), key)


def make_ensemble(devices=None):
  members = jax.vmap(init_member)(jnp.arange(MEMBERS))
  return parallel.place_state(create_ensemble(members), devices)


def test_several_updates_of_a_batch_from_the_host_are_refused():
  with pytest.raises(ValueError, match='updates_per_call must be 1 .* Got: 2'):
    make_ensemble_update(
      loss_fn,
      optax.sgd(1.0),
      num_members=MEMBERS,
      batch_size=B,
      updates_per_call=2,
    )


# With 3 of 8 members at once, the last step has fewer.
@pytest.mark.parametrize(
  ('num_devices', 'at_once'), [(1, None), (1, MEMBERS), (1, 3), (4, None)]
)
def test_member_matches_a_run_alone(num_devices, at_once):
  devices = jax.devices()[:num_devices]
  update = make_ensemble_update(
    loss_fn,
    optax.adam(1e-2),
    num_members=MEMBERS,
    batch_size=B,
    make_batch=per_example(sample),
    updates_per_call=2,
    at_once=at_once,
    devices=devices,
  )
  state, history = make_ensemble(devices), []
  for _ in range(3):
    state, metrics = update(state)
    history.append(jax.device_get(metrics))
  assert state.step == 6
  shard = state.carry.params['hidden'].addressable_shards[0].data
  assert shard.shape == (1, MEMBERS // num_devices, X, 7)

  alone = make_update(
    loss_fn,
    optax.adam(1e-2),
    global_batch_size=B,
    make_batch=per_example(sample),
    updates_per_call=2,
    devices=jax.devices()[:1],
  )
  for seed in (0, 3, MEMBERS - 1):
    single = parallel.place_state(init_member(seed), jax.devices()[:1])
    for metrics in history:
      single, expected = alone(single)
      for name, pair in expected.items():
        got = [each[seed] for each in metrics[name]]
        np.testing.assert_allclose(got, pair, rtol=1e-5)
    member = get_member(state, seed)
    assert member.step == 6
    assert (member.key == single.key).all()
    chex.assert_trees_all_close(member.params, single.params, **TOLERANCE)
    chex.assert_trees_all_close(member.opt_state, single.opt_state, **TOLERANCE)


def test_host_batches_have_a_row_per_member():
  update = make_ensemble_update(
    loss_fn, optax.adam(1e-2), num_members=MEMBERS, batch_size=B
  )
  batches = [make_batch(seed) for seed in range(MEMBERS)]
  stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
  state, metrics = update(make_ensemble(), parallel.split_batch(stacked))
  for seed in range(MEMBERS):
    loss, _ = loss_fn(init_member(seed).params, {}, (), None, batches[seed])
    # A float32 sum of a few dozen numbers in another order.
    np.testing.assert_allclose(metrics['loss'][0][seed], loss, rtol=1e-5)
  assert state.step == 1


def test_non_finite_member_does_not_affect_the_others():
  update = make_ensemble_update(
    loss_fn, optax.adam(1e-2), num_members=MEMBERS, batch_size=B
  )
  stacked = jax.tree.map(
    lambda *leaves: np.stack(leaves), *map(make_batch, range(MEMBERS))
  )
  good, _ = update(make_ensemble(), parallel.split_batch(stacked))
  stacked['y'][5] *= np.nan
  state, metrics = update(make_ensemble(), parallel.split_batch(stacked))
  verdicts = np.arange(MEMBERS) == 5
  np.testing.assert_array_equal(metrics['nonfinite'][0], verdicts)
  assert np.isnan(metrics['loss'][0][5])
  for seed in range(MEMBERS):
    member = get_member(state, seed)
    expected = init_member(5) if seed == 5 else get_member(good, seed)
    chex.assert_trees_all_equal(
      jax.device_get(member.params), jax.device_get(expected.params)
    )
    assert member.step == 1


def test_ensemble_is_traced_once():
  chex.clear_trace_counter()
  update = make_ensemble_update(
    chex.assert_max_traces(loss_fn, n=1),
    optax.adam(1e-2),
    num_members=MEMBERS,
    batch_size=B,
    make_batch=per_example(sample),
  )
  state = make_ensemble()
  for _ in range(3):
    state, _ = update(state)
  # Nor for a state restored from a checkpoint.
  update(parallel.place_state(parallel.gather_carry(state)))


def test_members_that_do_not_divide_raise():
  with pytest.raises(ConfigurationError, match='6 does not divide over 4'):
    make_ensemble_update(loss_fn, optax.sgd(1.0), num_members=6, batch_size=B)
