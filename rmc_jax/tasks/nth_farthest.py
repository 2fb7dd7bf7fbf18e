"""The Nth Farthest task: the vector that is n-th farthest from vector m."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rmc_jax.checks import one_of
from rmc_jax.types import Array

ORDERS = ('farthest', 'nearest')


class Question(NamedTuple):
  """One sequence and its question. O objects, T = O steps."""

  vectors: Array  # [T, features] objects in the order in which they are shown
  labels: Array  # [T] of the objects, a permutation of 0 .. O-1
  n: Array  # () in 0 .. O-1, the rank asked for; 0 is the farthest (nearest)
  m: Array  # () in 0 .. O-1, the label of the reference vector


class Example(NamedTuple):
  """An encoded question and its answer."""

  inputs: Array  # [T, features + 3 * O], see `encode`
  target: Array  # () integer, the label that answers the question


def sample(
  key: Array,
  *,
  num_objects: int = 8,
  num_features: int = 16,
  order: str = 'farthest',
) -> Example:
  """Draws one example; `jax.vmap` over keys for a batch.

  Vectors are uniform in [-1, 1), labels a random permutation, n and m uniform
  over all objects, so the reference itself is the answer once in `num_objects`
  times (Santoro et al. 2018, appendix A.1). Consumes `key`; for `order` see
  `answer`.
  """
  question = sample_question(key, num_objects, num_features)
  return Example(encode(question), answer(question, order))


def sample_question(
  key: Array, num_objects: int, num_features: int
) -> Question:
  """Draws one question; consumes `key`."""
  vector_key, label_key, n_key, m_key = jax.random.split(key, 4)
  shape = (num_objects, num_features)
  return Question(
    vectors=jax.random.uniform(vector_key, shape, minval=-1.0, maxval=1.0),
    labels=jax.random.permutation(label_key, num_objects),
    n=jax.random.randint(n_key, (), 0, num_objects),
    m=jax.random.randint(m_key, (), 0, num_objects),
  )


def answer(question: Question, order: str = 'farthest') -> Array:
  """The label () at rank n of the Euclidean distances from vector m.

  The order is 'farthest' as in the paper: rank 0 is the farthest vector, the
  last rank the reference. Or 'nearest': rank 0 is the reference, as in the
  authors' dataset, `sonnet/examples/dataset_nth_farthest.py`, which in spite of
  its name sorts in ascending order.

  Raises:
    ValueError: unknown order.
  """
  one_of('order', order, ORDERS)
  reference = question.vectors[jnp.argmax(question.labels == question.m)]
  offsets = question.vectors - reference[None, :]  # [T, features]
  distances = jnp.sum(offsets**2, axis=-1)  # [T], squared: the same ranks
  ranked = jnp.argsort(distances, descending=order == 'farthest')
  return question.labels[ranked[question.n]]


def encode(question: Question) -> Array:
  """The inputs (x_t; l_t; n; m), [T, features + 3 * O], of appendix A.1.

  Label, n and m are one-hot vectors of size O, n and m the same at every step.
  The authors' dataset has m before n; the parity suite swaps these columns.
  """
  n, m = (jnp.full_like(question.labels, x) for x in (question.n, question.m))
  one_hots = jax.nn.one_hot(
    jnp.stack([question.labels, n, m], axis=-1),  # [T, 3]
    question.labels.shape[0],
    dtype=question.vectors.dtype,
  )  # [T, 3, O]
  one_hots = one_hots.reshape(one_hots.shape[0], -1)
  return jnp.concatenate([question.vectors, one_hots], axis=-1)
