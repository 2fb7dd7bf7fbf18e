"""Tests rmc_jax/losses.py against float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import losses

B, T, C = 3, 5, 7
# float32 logsumexp of a few values of order 1, and their sum.
TOLERANCE = {'rtol': 1e-5}


def numpy_cross_entropies(logits, labels):
  logits = np.asarray(logits, np.float64)
  probabilities = np.exp(logits)
  probabilities /= probabilities.sum(-1, keepdims=True)
  return -np.log(np.take_along_axis(probabilities, labels[..., None], -1))[
    ..., 0
  ]


@pytest.fixture
def logits():
  return np.random.default_rng(0).normal(size=(B, T, C)).astype(np.float32)


@pytest.fixture
def labels():
  return np.random.default_rng(1).integers(0, C, size=(B, T))


def test_sums_over_all_leading_axes(logits, labels):
  total, weight = losses.softmax_cross_entropy(
    jnp.asarray(logits), jnp.asarray(labels)
  )
  np.testing.assert_allclose(
    total, numpy_cross_entropies(logits, labels).sum(), **TOLERANCE
  )
  assert weight == B * T
  assert total.dtype == weight.dtype == jnp.float32


def test_weights_scale_each_label(logits, labels):
  weights = np.random.default_rng(2).uniform(size=(B, T)).astype(np.float32)
  total, weight = losses.softmax_cross_entropy(
    jnp.asarray(logits), jnp.asarray(labels), jnp.asarray(weights)
  )
  expected = (weights * numpy_cross_entropies(logits, labels)).sum()
  np.testing.assert_allclose(total, expected, **TOLERANCE)
  np.testing.assert_allclose(weight, weights.sum(), **TOLERANCE)


def test_masked_labels_are_ignored(logits, labels):
  mask = np.ones((B, T), bool)
  mask[1, 2:] = False
  padded = np.where(mask, labels, [[C], [C + 90], [-1]])

  def loss(z):
    return losses.softmax_cross_entropy(
      z, jnp.asarray(padded), jnp.asarray(mask)
    )

  (total, weight), gradient = jax.value_and_grad(
    lambda z: loss(z), has_aux=True
  )(jnp.asarray(logits))
  expected = numpy_cross_entropies(logits, labels)[mask].sum()
  np.testing.assert_allclose(total, expected, **TOLERANCE)
  assert weight == B * T - 3
  assert np.all(np.isfinite(gradient))
  np.testing.assert_array_equal(
    np.any(np.asarray(gradient) != 0, axis=-1), mask
  )


def test_vmap_returns_one_pair_per_example(logits, labels):
  totals, weights = jax.vmap(losses.softmax_cross_entropy)(
    jnp.asarray(logits), jnp.asarray(labels)
  )
  np.testing.assert_allclose(
    totals, numpy_cross_entropies(logits, labels).sum(1), **TOLERANCE
  )
  np.testing.assert_array_equal(weights, [T] * B)


def test_bfloat16_logits_are_summed_in_float32(logits, labels):
  # 15 losses near 2 sum to about 32, where bfloat16 has steps of 0.25.
  rounded = jnp.asarray(logits, jnp.bfloat16)
  total, _ = losses.softmax_cross_entropy(rounded, jnp.asarray(labels))
  assert total.dtype == jnp.float32
  expected = numpy_cross_entropies(rounded, labels).sum()
  np.testing.assert_allclose(total, expected, **TOLERANCE)


def test_large_logits_do_not_overflow():
  total, _ = losses.softmax_cross_entropy(
    jnp.asarray([[1e4, -1e4, 0.0]]), jnp.asarray([1])
  )
  assert total == 2e4


def test_label_out_of_range_gives_nan(logits, labels):
  labels[0, 0] = C
  total, _ = losses.softmax_cross_entropy(
    jnp.asarray(logits), jnp.asarray(labels)
  )
  assert np.isnan(total)


@pytest.mark.parametrize(
  ('label_shape', 'weight_shape'), [((T, B), (T, B)), ((B, T), (T, B))]
)
def test_refuses_swapped_axes(logits, label_shape, weight_shape):
  with pytest.raises(AssertionError):
    losses.softmax_cross_entropy(
      jnp.asarray(logits),
      jnp.zeros(label_shape, jnp.int32),
      jnp.ones(weight_shape),
    )


def test_refuses_float_labels(logits):
  with pytest.raises(AssertionError):
    losses.softmax_cross_entropy(jnp.asarray(logits), jnp.zeros((B, T)))
