"""Multi-head dot-product attention between the rows of a memory."""

from collections.abc import Sequence
import functools

import chex
import jax
import jax.numpy as jnp

from rmc_jax.types import Array


def dot_product_attention(
  query: Array,
  keys: Sequence[Array],
  values: Sequence[Array],
  *,
  compute_dtype: jnp.dtype | None = None,
) -> tuple[Array, Array]:
  r"""Computes multi-head dot-product attention.

  .. math:: \mathrm{softmax}(Q K^T) V

  for each head (Santoro et al. 2018, eq. 1; the caller scales `query` by
  1/sqrt(d_k)). M is the number of rows attended to. They are passed in groups,
  such as memory and inputs, to avoid stacking them; the result is that of one
  group with all rows in that order.

  Args:
    query: [..., N, H, K], already scaled.
    keys: groups of [..., M_i, H, K]; the M_i add up to M.
    values: for each group [..., M_i, H, V].
    compute_dtype: dtype of the factors of both products; None keeps theirs.
      Sums and the softmax are in float32 or wider.

  Returns:
    The attended values with concatenated heads, [..., N, H * V], and the
    attention weights, [..., H, N, M], which sum to 1 over the last axis.
  """
  dtype = compute_dtype or query.dtype
  sum_dtype = jnp.promote_types(dtype, jnp.float32)

  def product(pattern, x, y):
    return jnp.einsum(
      pattern,
      x.astype(dtype),
      y.astype(dtype),
      preferred_element_type=sum_dtype,
    )

  for key, value in zip(keys, values, strict=True):
    chex.assert_equal_rank([query, key, value])
    chex.assert_equal_shape([query, key], dims=(-2, -1))
    chex.assert_equal_shape([key, value], dims=(-3, -2))
  logits = [product('...nhk,...mhk->...hnm', query, key) for key in keys]
  weights = jax.nn.softmax(jnp.concatenate(logits, axis=-1))  # [..., H, N, M]
  groups = [key.shape[-3] for key in keys]
  parts = jax.lax.split(weights, groups, axis=weights.ndim - 1)
  attended = functools.reduce(
    jnp.add,
    (
      product('...hnm,...mhv->...nhv', part, value)
      for part, value in zip(parts, values, strict=True)
    ),
  )  # [..., N, H, V]
  width = attended.shape[-2] * attended.shape[-1]  # H * V
  return attended.reshape(*attended.shape[:-2], width), weights


def split_heads(
  rows: Array, num_heads: int, sizes: Sequence[int]
) -> list[Array]:
  """Splits each row into heads, and each head into parts [..., M, H, size].

  Args:
    rows: [..., M, H * sum(sizes)]; the columns of a head are adjacent.
    num_heads: H.
    sizes: e.g. (K, K, V) for queries, keys and values.
  """
  if rows.shape[-1] != num_heads * sum(sizes):
    raise ValueError(
      f'rows have width {rows.shape[-1]}, expected {num_heads * sum(sizes)} '
      f'for {num_heads} heads of {" + ".join(map(str, sizes))} features.'
    )
  heads = rows.reshape(*rows.shape[:-1], num_heads, sum(sizes))
  # The transpose of a split is a concatenation; slices would pad and add.
  return list(jax.lax.split(heads, sizes, axis=heads.ndim - 1))
