"""Tests rmc_jax/models/sequence_classifier.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import RelationalMemory
from rmc_jax.models import SequenceClassifier

B, T, FEATURES, CLASSES = 2, 5, 3, 7
N, H, V = 4, 2, 6


def make(core=lambda: RelationalMemory(N, V, H), **kwargs):
  def model():
    return SequenceClassifier(core(), CLASSES, (11, 13), **kwargs)

  net = hk.without_apply_rng(hk.transform(lambda x: model()(x)))
  trace = hk.without_apply_rng(hk.transform(lambda x: model().trace(x)))
  inputs = jax.random.normal(jax.random.key(1), (B, T, FEATURES))
  net, trace = (
    hk.Transformed(jax.jit(each.init), jax.jit(each.apply))
    for each in (net, trace)
  )
  return net, trace, net.init(jax.random.key(0), inputs), inputs


@pytest.mark.parametrize(
  'core', [lambda: RelationalMemory(N, V, H), lambda: hk.LSTM(9)]
)
def test_logits_come_from_the_last_output(core):
  net, _, params, inputs = make(core)
  logits = net.apply(params, inputs)
  assert logits.shape == (B, CLASSES)

  def by_hand(inputs):
    cell = core()
    state = cell.initial_state(B)
    for t in range(T):
      output, state = cell(inputs[:, t], state)
    return output

  by_hand = hk.without_apply_rng(hk.transform(by_hand))
  output = jax.jit(by_hand.apply)(params, inputs)
  hidden = np.asarray(output)
  for layer in ('mlp/~/linear_0', 'mlp/~/linear_1'):
    weights = params[f'sequence_classifier/{layer}']
    hidden = np.maximum(
      hidden @ np.asarray(weights['w']) + np.asarray(weights['b']), 0
    )
  weights = params['sequence_classifier/logits']
  # float32 products in another order.
  np.testing.assert_allclose(
    logits,
    hidden @ np.asarray(weights['w']) + np.asarray(weights['b']),
    atol=1e-5,
  )


def test_trace_returns_the_logits_of_a_call():
  net, trace, params, inputs = make()
  logits, steps = trace.apply(params, inputs)
  np.testing.assert_allclose(logits, net.apply(params, inputs), atol=1e-5)
  assert steps.attention.shape == (T, B, 1, H, N, N + 1)


def test_logits_depend_on_every_step():
  net, _, params, inputs = make()

  def total(inputs):
    return jnp.sum(net.apply(params, inputs) ** 2)

  gradient = jax.grad(total)(inputs)
  assert (np.abs(gradient).max(axis=-1) > 0).all()


def test_parameter_count_at_paper_size():
  # 605,184 of the core and 723,976 of the read-out.
  def model(inputs):
    return SequenceClassifier(RelationalMemory(8, 32, 8), 8)(inputs)

  params = jax.eval_shape(
    hk.transform(model).init, jax.random.key(0), jnp.zeros((1, 8, 40))
  )
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 605_184 + 723_976
