"""Tests rmc_jax/rl/loss.py against float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.rl import impala_loss
from rmc_jax.rl import vtrace
from tests.reference import vtrace as reference
from tests.rl.sequences import random_sequences

T, B, A = 7, 5, 3
COSTS = {'baseline_cost': 0.7, 'entropy_cost': 0.3}
TRACE = {'clip_rho': 0.9, 'clip_c': 0.8, 'trace_decay': 0.95}


@pytest.fixture
def batch():
  rng = np.random.default_rng(4)
  sequences = random_sequences(T, B)
  del sequences['log_ratios']
  return sequences | {
    'logits': rng.standard_normal((T, B, A)),
    'actor_logits': rng.standard_normal((T, B, A)),
    'actions': rng.integers(0, A, (T, B)),
  }


def on_device(batch):
  return jax.tree.map(jnp.asarray, batch)


def expected_parts(batch):
  """Returns policy, baseline and entropy, example by example."""
  parts = np.zeros(3)
  for b in range(B):
    one = {name: array[:, b] for name, array in batch.items()}
    policy, actor = (
      np.exp(one.pop(name)) for name in ('logits', 'actor_logits')
    )
    policy /= policy.sum(-1, keepdims=True)
    actor /= actor.sum(-1, keepdims=True)
    actions = one.pop('actions')
    chosen = policy[np.arange(T), actions]
    ratios = chosen / actor[np.arange(T), actions]
    targets = reference.targets(ratios, **one, **TRACE)
    advantages = reference.advantages(
      ratios, **one, v=targets, clip_advantage=1.1
    )
    parts += (
      -(np.log(chosen) * advantages).sum(),
      0.5 * ((targets - one['values']) ** 2).sum(),
      -(policy * np.log(policy)).sum(),
    )
  return parts


def test_parts_are_sums_over_time_and_batch(batch):
  loss, parts = impala_loss(
    **on_device(batch), **COSTS, **TRACE, clip_advantage=1.1
  )
  policy, baseline, entropy = expected_parts(batch)
  # Sums of 105 terms of order 1 in float32.
  close = {'rtol': 1e-5, 'atol': 1e-4}
  np.testing.assert_allclose(parts['policy'], policy, **close)
  np.testing.assert_allclose(parts['baseline'], baseline, **close)
  np.testing.assert_allclose(parts['entropy'], entropy, **close)
  total = (
    policy + COSTS['baseline_cost'] * baseline - COSTS['entropy_cost'] * entropy
  )
  np.testing.assert_allclose(loss, total, **close)


def test_gradients_are_those_of_the_published_estimators(batch):
  batch = on_device(batch)

  def loss_fn(logits, values):
    changed = batch | {'logits': logits, 'values': values}
    return impala_loss(**changed, **COSTS)[0]

  gradients = jax.grad(loss_fn, (0, 1))(batch['logits'], batch['values'])
  policy = jax.nn.softmax(batch['logits'])
  actor = jax.nn.softmax(batch['actor_logits'])
  chosen = jax.nn.one_hot(batch['actions'], A)
  names = 'rewards', 'discounts', 'ended', 'values', 'next_values'
  targets, advantages = vtrace(
    log_ratios=jnp.log((policy * chosen).sum(-1) / (actor * chosen).sum(-1)),
    **{name: batch[name] for name in names},
  )
  log_policy = jnp.log(policy)
  entropy = -(policy * log_policy).sum(-1, keepdims=True)
  expected = (
    advantages[..., None] * (policy - chosen)
    + COSTS['entropy_cost'] * policy * (log_policy + entropy),
    COSTS['baseline_cost'] * (batch['values'] - targets),
  )
  for left, right in zip(gradients, expected, strict=True):
    np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_masked_steps_are_left_out(batch):
  batch['mask'] = np.random.default_rng(5).random((T, B)) < 0.6
  changed = batch | {
    name: batch[name] + ~batch['mask'] for name in ('rewards', 'actions')
  }
  changed['actions'] %= A
  # The step before has ended, so that nothing flows back from the others.
  ended = ~batch['mask'][1:] | batch['ended'][:-1]
  for each in (batch, changed):
    each['ended'] = np.concatenate([ended, batch['ended'][-1:]])
  first, second = (
    impala_loss(**on_device(each), **COSTS)[0] for each in (batch, changed)
  )
  np.testing.assert_allclose(first, second, rtol=1e-5)
  everything = impala_loss(**on_device(batch | {'mask': None}), **COSTS)[0]
  assert abs(everything - first) > 0.1


def test_swapped_axes_are_refused(batch):
  batch = on_device(batch)
  for name, array in batch.items():
    with pytest.raises(AssertionError):
      impala_loss(**batch | {name: array.swapaxes(0, 1)})
