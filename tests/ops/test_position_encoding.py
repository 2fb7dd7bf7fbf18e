"""Tests rmc_jax/ops/position_encoding.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.ops.position_encoding import embed_sentences
from rmc_jax.ops.position_encoding import ENCODINGS
from rmc_jax.ops.position_encoding import unit_scale
from tests.reference import memn2n as reference

# B examples, M sentences, J words, V symbols, d units.
B, M, J, V, D = 2, 3, 5, 11, 7
COLUMNS = 6


def draw():
  """Returns a table without nil, and padded sentences."""
  generator = np.random.default_rng(0)
  table = generator.normal(size=(V, D)).astype(np.float32)
  table[0] = 0
  ids = generator.integers(1, V, (B, M, J))
  ids[0, 1, 2:] = ids[1, 0, 4:] = ids[1, 2] = 0
  return jnp.asarray(table), jnp.asarray(ids, jnp.int32)


def embed(table, ids, encoding):
  scale = unit_scale(encoding, D, COLUMNS)
  return embed_sentences(table, ids, scale, encoding, COLUMNS)


@pytest.mark.parametrize('encoding', ENCODINGS)
def test_agrees_with_the_reference(encoding):
  table, ids = draw()
  expected = [
    [reference.embed(table, sentence, encoding, COLUMNS) for sentence in each]
    for each in ids
  ]
  # float32 against float64, sums of five products.
  np.testing.assert_allclose(
    embed(table, ids, encoding), expected, rtol=1e-5, atol=1e-5
  )


@pytest.mark.parametrize('encoding', ENCODINGS)
def test_gradient_is_that_of_a_sum_over_rows(encoding):
  table, ids = draw()
  cotangent = jax.random.normal(jax.random.key(1), (B, M, D))
  _, pullback = jax.vjp(lambda table: embed(table, ids, encoding), table)
  expected = np.zeros((V, D))
  for b, m, j in np.ndindex(ids.shape):
    if ids[b, m, j]:
      num_words = (ids[b, m] > 0).sum()
      for k in range(D):
        weight = reference.position_weight(
          encoding, k + 1, j + 1, D, COLUMNS, num_words
        )
        expected[ids[b, m, j], k] += weight * cotangent[b, m, k]
  # float32 against float64, sums of at most B * M * J products. The row of nil
  # is a constant zero in the models.
  np.testing.assert_allclose(
    pullback(cotangent)[0][1:], expected[1:], rtol=1e-5, atol=1e-5
  )


def test_two_tables_are_embedded_at_once():
  table, ids = draw()
  both = embed_sentences(
    jnp.concatenate([table, 2 * table], axis=1),
    ids,
    jnp.tile(unit_scale('position', D, COLUMNS), 2),
    'position',
    COLUMNS,
  )
  one = embed(table, ids, 'position')
  np.testing.assert_allclose(both[..., :D], one, rtol=1e-6)
  np.testing.assert_allclose(both[..., D:], 2 * one, rtol=1e-6)
