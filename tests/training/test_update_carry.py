"""Tests rmc_jax/training/update.py: a state that belongs to the examples."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rmc_jax.training import parallel
from rmc_jax.training.update import LossAux
from rmc_jax.training.update import make_update
from tests.training.small_update import B
from tests.training.small_update import make_batch
from tests.training.small_update import make_params
from tests.training.small_update import start


def carry_sums(params, network_state, key, batch):
  """Each example's state becomes twice itself and the sum of its inputs."""
  del key
  sums = batch['x'].sum((1, 2)) + jax.tree.leaves(params)[0].sum()
  carried = 2 * network_state['sum'] + sums
  loss = (carried**2).sum()
  aux = LossAux(
    jnp.float32(len(sums)), {}, {'sum': jax.lax.stop_gradient(carried)}
  )
  return loss, aux


@pytest.mark.parametrize('num_devices', [1, 2, 4])
def test_a_carried_state_stays_with_its_examples(num_devices):
  devices, optimizer = jax.devices()[:num_devices], optax.sgd(0.0)
  update = make_update(
    carry_sums, optimizer, global_batch_size=B, carry=True, devices=devices
  )
  expected = np.arange(B, dtype=np.float32)
  state = start(optimizer, devices, network_state={'sum': expected})
  for seed in range(3):
    batch = make_batch(seed)
    state, _ = update(state, parallel.split_batch(batch, devices))
    sums = batch['x'].sum((1, 2)) + jax.tree.leaves(make_params())[0].sum()
    expected = 2 * expected + sums
  parallel.assert_replicated(state, devices)
  # Rounding of sums of T * X numbers of order 1, doubled twice.
  np.testing.assert_allclose(
    state.network_state['sum'], expected, rtol=1e-5, atol=1e-4
  )


def test_a_carried_state_of_another_batch_is_refused():
  optimizer = optax.sgd(0.0)
  update = make_update(carry_sums, optimizer, global_batch_size=B, carry=True)
  state = start(optimizer, network_state={'sum': np.zeros(B + 1, np.float32)})
  with pytest.raises(ValueError, match=f'has {B} rows.*{B + 1}'):
    update(state, parallel.split_batch(make_batch(0)))
