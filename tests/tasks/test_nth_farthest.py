"""Tests rmc_jax/tasks/nth_farthest.py."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.tasks import nth_farthest
from tests.reference import nth_farthest as reference

OBJECTS, FEATURES, EXAMPLES = 5, 3, 2000


@functools.cache
def questions(num_examples=EXAMPLES):
  keys = jax.random.split(jax.random.key(0), num_examples)
  sample = functools.partial(
    nth_farthest.sample_question,
    num_objects=OBJECTS,
    num_features=FEATURES,
  )
  return jax.jit(jax.vmap(sample))(keys)


@pytest.mark.parametrize('order', nth_farthest.ORDERS)
def test_answers_equal_the_reference(order):
  answers = jax.vmap(lambda q: nth_farthest.answer(q, order))(questions())
  expected = [
    reference.answer(*example, order)
    for example in zip(*map(np.asarray, questions()), strict=True)
  ]
  np.testing.assert_array_equal(answers, expected)


def test_encoding_equals_the_reference():
  inputs = jax.vmap(nth_farthest.encode)(questions())
  assert inputs.shape == (EXAMPLES, OBJECTS, FEATURES + 3 * OBJECTS)
  expected = [
    reference.encode(*example)
    for example in zip(*map(np.asarray, questions()), strict=True)
  ]
  np.testing.assert_array_equal(inputs, np.float32(expected))


def test_a_hand_checked_example():
  question = nth_farthest.Question(
    vectors=jnp.array([[0.0, 0.5], [0.0, -1.0], [0.1, 0.4]]),
    labels=jnp.array([2, 0, 1]),
    n=jnp.array(0),
    m=jnp.array(1),
  )
  # From (0.1, 0.4): 0.14 to label 2, 1.40 to label 0, 0 to itself.
  assert nth_farthest.answer(question) == 0
  assert nth_farthest.answer(question._replace(n=jnp.array(1))) == 2
  assert nth_farthest.answer(question._replace(n=jnp.array(2))) == 1
  assert nth_farthest.answer(question, 'nearest') == 1
  np.testing.assert_array_equal(
    nth_farthest.encode(question)[0],
    np.float32([0.0, 0.5, 0, 0, 1, 1, 0, 0, 0, 1, 0]),
  )


def test_distributions():
  vectors, labels, n, m = map(np.asarray, questions())
  assert vectors.min() >= -1.0
  assert vectors.max() < 1.0
  # Means and spreads of 30,000 uniform numbers: 5 standard errors.
  assert abs(vectors.mean()) < 5 * np.sqrt(1 / 3 / vectors.size)
  assert abs((vectors**2).mean() - 1 / 3) < 5 * 0.3 / np.sqrt(vectors.size)
  np.testing.assert_array_equal(
    np.sort(labels, axis=1), np.tile(np.arange(OBJECTS), (EXAMPLES, 1))
  )
  for values in (n, m, labels[:, 0]):
    counts = np.bincount(values, minlength=OBJECTS)
    # Binomial with p = 1/5: 5 standard deviations.
    assert abs(counts - EXAMPLES / OBJECTS).max() < 5 * np.sqrt(
      EXAMPLES * 0.2 * 0.8
    )
  # n, m and the step of the reference are independent.
  step = (labels == m[:, None]).argmax(axis=1)
  for a, b in ((n, m), (n, step), (m, step)):
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(EXAMPLES)


def test_the_reference_is_the_answer_once_in_num_objects_times():
  answers = jax.vmap(nth_farthest.answer)(questions())
  itself = np.mean(np.asarray(answers) == np.asarray(questions().m))
  assert abs(itself - 1 / OBJECTS) < 5 * np.sqrt(0.2 * 0.8 / EXAMPLES)


def test_an_example_depends_only_on_its_key():
  sample = functools.partial(
    nth_farthest.sample, num_objects=OBJECTS, num_features=FEATURES
  )
  first = sample(jax.random.key(1))
  np.testing.assert_array_equal(first.inputs, sample(jax.random.key(1)).inputs)
  assert not np.array_equal(first.inputs, sample(jax.random.key(2)).inputs)


def test_an_unknown_order_is_an_error():
  with pytest.raises(ValueError, match="order must be one of .* 'closest'"):
    nth_farthest.sample(jax.random.key(0), order='closest')
