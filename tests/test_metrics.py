"""Tests rmc_jax/metrics.py."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import metrics

B, T, C = 3, 5, 7


@pytest.fixture
def logits():
  return np.random.default_rng(0).normal(size=(B, T, C)).astype(np.float32)


def labels_right_at(logits, right):
  return np.where(right, logits.argmax(-1), (logits.argmax(-1) + 1) % C)


def test_accuracy_counts_correct_labels(logits):
  right = np.zeros((B, T), bool)
  right[0, :4] = right[2, 1] = True
  labels = jnp.asarray(labels_right_at(logits, right))
  correct, count = metrics.accuracy(jnp.asarray(logits), labels)
  assert (correct, count) == (5, B * T)
  correct, count = jax.vmap(metrics.accuracy)(jnp.asarray(logits), labels)
  np.testing.assert_array_equal(correct, [4, 0, 1])
  np.testing.assert_array_equal(count, [T] * B)


def test_accuracy_ignores_labels_of_weight_zero(logits):
  right = np.zeros((B, T), bool)
  right[0, :4] = True
  mask = np.ones((B, T), bool)
  mask[0, 3:] = False  # Hides one right and one wrong answer.
  labels = jnp.asarray(labels_right_at(logits, right))
  correct, count = metrics.accuracy(
    jnp.asarray(logits), labels, jnp.asarray(mask)
  )
  assert (correct, count) == (3, B * T - 2)


def test_accuracy_refuses_swapped_axes(logits):
  with pytest.raises(AssertionError):
    metrics.accuracy(jnp.asarray(logits), jnp.zeros((T, B), jnp.int32))


def test_mean_of_merged_metrics_weights_every_example_equally():
  merged = metrics.merge(
    {'loss': (2.0, 4)}, {'loss': (9.0, 1)}, {'loss': (0.0, 5)}
  )
  assert metrics.divide(merged) == {'loss': 1.1}


def test_merge_of_one_changes_nothing():
  assert metrics.merge({'loss': (2.0, 4)}) == {'loss': (2.0, 4)}


def test_merge_refuses_a_missing_name():
  with pytest.raises(ValueError, match='accuracy'):
    metrics.merge({'loss': (2.0, 4), 'accuracy': (1.0, 4)}, {'loss': (2.0, 4)})


def test_divide_returns_floats_for_arrays():
  means = metrics.divide({'loss': (jnp.asarray(3.0), jnp.asarray(2))})
  assert means == {'loss': 1.5}
  assert isinstance(means['loss'], float)


def test_a_count_of_zero_gives_nan_without_a_warning():
  assert math.isnan(metrics.divide({'episodes': (0.0, 0)})['episodes'])
