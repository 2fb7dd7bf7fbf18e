"""Tests rmc_jax/rl/vtrace.py against scalable_agent and the definition."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.rl import vtrace
from tests.reference import vtrace as reference
from tests.rl.sequences import random_sequences

REWARDS = [0.0, 1.0, -1.0, 10.0]
VALUES = [0.5, 1.0, 0.2, 3.0]
BOOTSTRAP = 2.0
NAMES = [
  'log_ratios', 'rewards', 'discounts', 'ended', 'values', 'next_values'
]  # fmt: skip


# Computed by vtrace.py of scalable_agent.
@pytest.mark.parametrize(
  'ratios, continues, clip, targets, advantages',
  [
    (
      [0.5, 2.0, 1.0, 0.25],
      [1, 1, 0, 1],
      1.0,
      [0.25495, 0.01, -1.0, 5.245],
      [-0.24505, -0.99, -1.2, 2.245],
    ),
    (
      [0.5, 2.0, 1.0, 0.25],
      [1, 1, 0, 1],
      math.inf,
      [0.35296, 0.208, -1.0, 5.245],
      [-0.14704, -1.98, -1.2, 2.245],
    ),
    (
      [1.0] * 4,
      [1] * 4,
      1.0,
      [11.634082, 11.751598, 10.8602, 11.98],
      [11.134082, 10.751598, 10.6602, 8.98],
    ),
  ],
)
def test_results_equal_those_of_the_original(
  ratios, continues, clip, targets, advantages
):
  continues = jnp.array(continues)
  found = vtrace(
    log_ratios=jnp.log(jnp.array(ratios)),
    rewards=jnp.array(REWARDS),
    discounts=0.99 * continues,
    ended=continues == 0,
    values=jnp.array(VALUES),
    next_values=jnp.array([*VALUES[1:], BOOTSTRAP]),
    clip_rho=clip,
    clip_advantage=clip,
  )
  # The vectors have six digits.
  np.testing.assert_allclose(found.targets, targets, atol=2e-6)
  np.testing.assert_allclose(found.advantages, advantages, atol=2e-6)


@pytest.mark.parametrize('trace_decay', [1.0, 0.8])
def test_results_equal_those_of_rlax(trace_decay):
  rlax = pytest.importorskip(
    'rlax',
    reason='needs rlax, whose TensorFlow Probability has no release yet'
    ' for this JAX: pip install rlax tfp-nightly',
  )
  arguments = random_sequences(17, 5)
  # rlax has terminations only.
  arguments['discounts'] = np.where(arguments['ended'], 0, 0.9).astype('f')
  found = vtrace(
    **jax.tree.map(jnp.asarray, arguments),
    clip_rho=0.9,
    clip_advantage=1.5,
    trace_decay=trace_decay,
  )
  for game in range(5):
    one = {name: row[:, game] for name, row in arguments.items()}
    expected = rlax.vtrace_td_error_and_advantage(
      one['values'],
      one['next_values'],
      one['rewards'],
      one['discounts'],
      np.exp(one['log_ratios']),
      trace_decay,
      clip_rho_threshold=0.9,
      clip_pg_rho_threshold=1.5,
    )
    # Sums over 17 steps of float32 in the same order.
    close = {'atol': 1e-5}
    errors = found.targets[:, game] - one['values']
    np.testing.assert_allclose(errors, expected.errors, **close)
    if trace_decay == 1:  # Otherwise rlax mixes values into the advantages.
      np.testing.assert_allclose(
        found.advantages[:, game], expected.pg_advantage, **close
      )


@pytest.mark.parametrize('clip_rho, clip_c', [(1.0, 1.0), (2.0, 0.7)])
def test_targets_equal_their_definition(clip_rho, clip_c):
  arguments = random_sequences(17, 5)
  found = vtrace(
    **jax.tree.map(jnp.asarray, arguments),
    clip_rho=clip_rho,
    clip_c=clip_c,
    clip_advantage=1.5,
    trace_decay=0.8,
  )
  for game in range(5):
    one = {name: row[:, game].tolist() for name, row in arguments.items()}
    ratios = np.exp(one.pop('log_ratios')).tolist()
    targets = reference.targets(
      ratios, **one, clip_rho=clip_rho, clip_c=clip_c, trace_decay=0.8
    )
    advantages = reference.advantages(
      ratios, **one, v=targets, clip_advantage=1.5
    )
    # Sums of up to 17 terms in float32.
    np.testing.assert_allclose(found.targets[:, game], targets, atol=1e-5)
    np.testing.assert_allclose(found.advantages[:, game], advantages, atol=1e-5)


def test_nothing_flows_over_the_end_of_an_episode():
  arguments = jax.tree.map(jnp.asarray, random_sequences(12, 5))
  arguments['ended'] = jnp.broadcast_to(jnp.arange(12)[:, None] == 4, (12, 5))
  before = vtrace(**arguments)
  later = jnp.arange(12)[:, None] > 4
  for name in ('rewards', 'values', 'log_ratios', 'next_values'):
    changed = jnp.where(later, jnp.nan, arguments[name])
    after = vtrace(**arguments | {name: changed})
    for left, right in zip(before, after, strict=True):
      np.testing.assert_array_equal(left[:5], right[:5])


def test_no_gradient_flows_through_the_results():
  arguments = jax.tree.map(jnp.asarray, random_sequences(7, 5))

  ended = arguments.pop('ended')

  def total(arguments):
    found = vtrace(**arguments, ended=ended)
    return found.targets.sum() + found.advantages.sum()

  for gradient in jax.tree.leaves(jax.grad(total)(arguments)):
    assert not gradient.any()


@pytest.mark.parametrize('name', NAMES)
def test_arrays_of_different_shapes_are_refused(name):
  arguments = jax.tree.map(jnp.asarray, random_sequences(5, 5))
  with pytest.raises(AssertionError):
    vtrace(**arguments | {name: arguments[name][0]})
