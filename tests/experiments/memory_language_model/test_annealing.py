"""Tests experiments/memory_language_model/annealing.py."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.memory_language_model import annealing
from rmc_jax import training
from rmc_jax.training import parallel

RULE = {'factor': 1.5, 'improvement': 0.9999, 'final_rate': 1e-5}
CLIP = 50.0


def make_state(rate=0.01):
  optimizer = annealing.make_optimizer(rate, CLIP)
  params = {'a': jnp.zeros((3, 2)), 'b': jnp.zeros(5)}
  state = training.create_state(params, {}, optimizer, jax.random.key(0))
  return optimizer, parallel.place_state(state)


@pytest.mark.parametrize(
  'losses, divided',
  [
    ([4.0, 3.0, 2.0], [0, 0, 0]),
    ([4.0, 4.0, 5.0, 3.0], [0, 1, 2, 2]),
    # The loss has to fall by more than 1e-4 of itself.
    ([1.0, 0.99995, 0.9998], [0, 1, 1]),
    # Each loss is compared with the one before it, not with the lowest.
    ([1.0, 3.0, 2.0], [0, 1, 1]),
  ],
)
def test_rate_falls_when_the_loss_does_not(losses, divided):
  _, state = make_state()
  for loss, times in zip(losses, divided, strict=True):
    state = annealing.end_epoch(state, loss, **RULE)
    assert annealing.learning_rate(state) == pytest.approx(0.01 / 1.5**times)


def test_rate_below_the_final_one_becomes_zero():
  _, state = make_state(rate=2.5e-5)
  rates = []
  for _ in range(5):
    state = annealing.end_epoch(state, 1.0, **RULE)
    rates.append(annealing.learning_rate(state))
  assert rates == pytest.approx([2.5e-5, 2.5e-5 / 1.5, 2.5e-5 / 1.5**2, 0, 0])


def test_updates_take_the_rate_and_the_clipped_gradient():
  optimizer, state = make_state()

  def loss_fn(params, network_state, carry, key, batch):
    # The gradient of each of the 11 parameters is the sum of the batch.
    total = sum(leaf.sum() for leaf in jax.tree.leaves(params)) * batch.sum()
    return total, training.LossAux(jnp.float32(1), {}, network_state, carry)

  update = training.make_update(
    chex.assert_max_traces(loss_fn, n=1),
    optimizer,
    global_batch_size=8,
    reduction='sum',
  )

  def change(state, value):
    before = jax.device_get(state.params)
    batch = parallel.split_batch(np.full(8, value, np.float32))
    state, _ = update(state, batch)
    after = jax.device_get(state.params)
    changes = jax.tree.map(lambda x, y: np.unique(y - x), before, after)
    return state, np.concatenate(jax.tree.leaves(changes))

  # Differences of float32 numbers of at most 0.2.
  assert_near = functools.partial(
    np.testing.assert_allclose, rtol=1e-4, atol=1e-7
  )
  state, changes = change(state, 1 / 8)
  assert_near(changes, -0.01)
  state, changes = change(state, 100.0)
  assert_near(changes, -0.01 * CLIP / 11**0.5)
  for loss in (1.0, 1.0):
    state = annealing.end_epoch(state, loss, **RULE)
  parallel.assert_replicated(state)
  state, changes = change(state, 1 / 8)
  assert_near(changes, -0.01 / 1.5)
  state = annealing.end_epoch(state, 1.0, **RULE | {'final_rate': 0.1})
  _, changes = change(state, 100.0)
  assert not changes.any()
