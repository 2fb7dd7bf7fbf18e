"""Tests rmc_jax/ops/attention.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import ops
from tests.reference import relational_memory as reference

B, N, M, H, K, V = 2, 3, 5, 7, 11, 13


def make():
  rng = np.random.default_rng(0)
  shapes = (B, N, H, K), (B, M, H, K), (B, M, H, V)
  return [jnp.asarray(rng.normal(size=s), jnp.float32) for s in shapes]


def test_attention_equals_a_loop_over_rows_and_heads():
  query, key, value = make()
  attended, weights = ops.dot_product_attention(query, [key], [value])
  assert weights.shape == (B, H, N, M)
  assert attended.shape == (B, N, H * V)
  for b in range(B):
    for h in range(H):
      expected, expected_weights = reference.attend(
        *(np.float64(x[b, :, h]) for x in (query, key, value))
      )
      np.testing.assert_allclose(weights[b, h], expected_weights, atol=5e-6)
      # float32 sums of K = 11 and M = 5 products of order 1.
      np.testing.assert_allclose(
        attended[b, :, h * V : (h + 1) * V], expected, atol=5e-6
      )


def test_weights_average_their_own_values():
  query, key, value = make()
  attended, weights = ops.dot_product_attention(query, [key], [value])
  mixed = np.einsum('bhnm,bmhv->bnhv', weights, value)
  np.testing.assert_allclose(
    attended,
    mixed.reshape(B, N, H * V),
    atol=5e-6,  # as above
  )


def test_groups_of_rows_equal_one_group():
  query, key, value = make()
  whole = ops.dot_product_attention(query, [key], [value])
  groups = [(x[:, :3], x[:, 3:4], x[:, 4:]) for x in (key, value)]
  # Sums of M = 5 terms of order 1 in another order.
  for got, expected in zip(
    ops.dot_product_attention(query, *groups), whole, strict=True
  ):
    np.testing.assert_allclose(got, expected, atol=5e-6)


def test_a_large_logit_does_not_overflow():
  query, key, value = make()
  attended, weights = ops.dot_product_attention(1e4 * query, [key], [value])
  assert np.isfinite(attended).all()
  assert np.isfinite(weights).all()


def test_bfloat16_products_keep_a_float32_softmax():
  query, key, value = make()
  exact, _ = ops.dot_product_attention(query, [key], [value])
  narrow, weights = ops.dot_product_attention(
    query, [key], [value], compute_dtype=jnp.bfloat16
  )
  assert (narrow.dtype, weights.dtype) == (jnp.float32, jnp.float32)
  # A bfloat16 softmax would sum to 1 within 1e-3.
  np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)
  # bfloat16 factors keep 8 bits of logits up to 10.
  np.testing.assert_allclose(narrow, exact, atol=0.15)


def test_split_heads_splits_each_head_into_parts():
  rows = jnp.arange(B * N * H * (K + V)).reshape(B, N, H * (K + V))
  first, second = ops.split_heads(rows, H, (K, V))
  assert first.shape == (B, N, H, K)
  for h in range(H):
    start = h * (K + V)
    np.testing.assert_array_equal(first[..., h, :], rows[..., start:][..., :K])
    np.testing.assert_array_equal(
      second[..., h, :], rows[..., start + K :][..., :V]
    )


def test_split_heads_refuses_a_wrong_width():
  with pytest.raises(
    ValueError, match='width 10, expected 9 for 3 heads of 2 \\+ 1'
  ):
    ops.split_heads(jnp.zeros((2, 10)), 3, (2, 1))


def test_refuses_mismatched_rows_and_features():
  query, key, value = make()
  with pytest.raises(AssertionError):
    ops.dot_product_attention(query, [key[..., :-1]], [value])
  with pytest.raises(AssertionError):
    ops.dot_product_attention(query, [key], [value[:, :-1]])


def test_gradient_of_attention_by_finite_differences():
  query, key, value = make()
  jax.test_util.check_grads(
    lambda q, k, v: ops.dot_product_attention(q, [k], [v])[0],
    (query, key, value),
    order=1,
    modes=['rev'],
    # Central differences of a float32 sum of order 1.
    atol=0.05,
    rtol=0.05,
  )
