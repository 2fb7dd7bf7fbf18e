"""Exact softmax over a large vocabulary, one block of words at a time.

Shapes in the softmax modules use these letters:

  V  words in the vocabulary
  D  width of the embeddings and of the hidden rows
  R  rows, the product of all leading axes
  C  words in a block
"""

import math

import chex
import jax
import jax.numpy as jnp

from rmc_jax.types import Array


def blocked_log_probs(
  hidden: Array,
  embeddings: Array,
  labels: Array,
  *,
  block_size: int,
) -> Array:
  r"""Returns the log probability of each label without a [..., V] array.

  .. math:: \log p_i(y_i) = z_{i y_i} - \log \sum_v e^{z_{iv}}, \qquad
            z_{iv} = h_i \cdot e_v

  A loop over blocks of C words carries the largest logit m so far and the sum s
  of the exponentials relative to it (Milakov and Gimelshein 2018, "Online
  normalizer calculation for softmax"):

  .. math:: m' = \max(m, \max_v z_v), \qquad
            s' = s \, e^{m - m'} + \sum_v e^{z_v - m'}

  The backward pass recomputes the logits of each block for
  :math:`d z_{iv} = g_i ([v = y_i] - p_i(v))`. This takes four products of the
  size of the logits instead of three, and memory for R * C logits instead of
  R * V. Pass leading axes rather than using `jax.vmap`, which would create one
  gradient of the embeddings per example.

  Factors of products have the promoted dtype of `hidden` and `embeddings`; sums
  are in float32 or wider. Float16 loses small probabilities in the gradient.
  Supports reverse-mode differentiation only.

  Args:
    hidden: [..., D].
    embeddings: [V, D]; V need not be a multiple of C.
    labels: [...] integers in 0..V-1; any other label gives nan.
    block_size: C; capped at V.

  Returns:
    [...] log probabilities, in float32 or wider.

  Raises:
    AssertionError: shapes do not match, or labels are not integers.
    ValueError: `block_size` is below 1.
  """
  vocab_size = len(embeddings)
  chex.assert_type(labels, int)
  chex.assert_shape(labels, hidden.shape[:-1])
  chex.assert_shape(embeddings, (vocab_size, hidden.shape[-1]))
  if block_size < 1:
    raise ValueError(f'block_size must be at least 1. Got: {block_size}.')
  log_probs = _differentiable_log_probs(
    min(block_size, vocab_size),
    hidden.reshape(math.prod(labels.shape), hidden.shape[-1]),
    embeddings,
    labels.reshape(-1),
  )  # [R]
  return nan_unless_words(log_probs.reshape(labels.shape), labels, vocab_size)


def summed_cross_entropy(
  log_probs: Array, weights: Array | None
) -> tuple[Array, Array]:
  """Returns -sum w log p and sum w, over all axes.

  Where the weight is 0, any log probability will do, even nan. None weights
  each position by 1.
  """
  if weights is None:
    return -log_probs.sum(), jnp.asarray(log_probs.size, log_probs.dtype)
  chex.assert_shape(weights, log_probs.shape)
  weights = weights.astype(log_probs.dtype)
  # A padded label may be out of range, and 0 * nan is nan.
  weighted = jnp.where(weights == 0, 0.0, weights * log_probs)
  return -weighted.sum(), weights.sum()


def nan_unless_words(log_probs: Array, labels: Array, vocab_size: int) -> Array:
  """Replaces log probabilities [...] by nan where labels are not in 0..V-1."""
  return jnp.where((labels >= 0) & (labels < vocab_size), log_probs, jnp.nan)


def product(pattern: str, x: Array, y: Array, dtype: jnp.dtype) -> Array:
  """Computes an einsum of factors in `dtype`, summed in float32 or wider."""
  return jnp.einsum(
    pattern,
    x.astype(dtype),
    y.astype(dtype),
    preferred_element_type=_sum_dtype(dtype),
  )


def _row_log_probs(
  block_size: int, hidden: Array, embeddings: Array, labels: Array
) -> Array:
  """Computes `blocked_log_probs` of [R, D] rows for labels in 0..V-1."""
  return _forward(block_size, hidden, embeddings, labels)[0]


def _forward(block_size, hidden, embeddings, labels):
  x = hidden.astype(jnp.promote_types(hidden.dtype, embeddings.dtype))

  def add_block(carry, index):
    peak, total, own = carry  # m, s and z of the label, each [R]
    _, _, logits, is_label = _block(index, block_size, x, embeddings, labels)
    new_peak = jnp.maximum(peak, logits.max(axis=-1))
    total *= jnp.exp(peak - new_peak)
    total += jnp.exp(logits - new_peak[:, None]).sum(axis=-1)
    own += jnp.where(is_label, logits, 0.0).sum(axis=-1)
    return (new_peak, total, own), None

  zeros = jnp.zeros(len(x), _sum_dtype(x.dtype))
  (peak, total, own), _ = jax.lax.scan(
    add_block,
    (jnp.full_like(zeros, -jnp.inf), zeros, zeros),
    _blocks(embeddings, block_size),
  )
  # The difference of the two large numbers is exact, so it comes first.
  log_probs = (own - peak) - jnp.log(total)
  return log_probs, (hidden, embeddings, labels, peak, total)


def _backward(block_size, residuals, g):
  hidden, embeddings, labels, peak, total = residuals
  dtype = jnp.promote_types(hidden.dtype, embeddings.dtype)
  x = hidden.astype(dtype)

  def add_block(carry, index):
    d_hidden, d_embeddings = carry
    start, words, logits, is_label = _block(
      index, block_size, x, embeddings, labels
    )
    probs = jnp.exp(logits - peak[:, None]) / total[:, None]
    d_logits = g[:, None] * (is_label - probs)  # [R, C]
    d_hidden += product('rc,cd->rd', d_logits, words, dtype)
    d_words = product('rc,rd->cd', d_logits, x, dtype)
    d_embeddings = jax.lax.dynamic_update_slice_in_dim(
      d_embeddings, d_words.astype(d_embeddings.dtype), start, axis=0
    )
    return (d_hidden, d_embeddings), None

  # The last block overlaps the one before it and has zeros there, so the loop
  # runs backwards for the latter to overwrite them.
  (d_hidden, d_embeddings), _ = jax.lax.scan(
    add_block,
    (jnp.zeros(x.shape, _sum_dtype(dtype)), jnp.zeros_like(embeddings)),
    _blocks(embeddings, block_size),
    reverse=True,
  )
  return d_hidden.astype(hidden.dtype), d_embeddings, None


_differentiable_log_probs = jax.custom_vjp(_row_log_probs, nondiff_argnums=(0,))
_differentiable_log_probs.defvjp(_forward, _backward)


def _blocks(embeddings: Array, block_size: int) -> Array:
  return jnp.arange(-(-len(embeddings) // block_size))


def _block(
  index: Array,
  block_size: int,
  x: Array,
  embeddings: Array,
  labels: Array,
) -> tuple[Array, Array, Array, Array]:
  """Returns a block's first word, its embeddings, logits and label mask."""
  # Every block has C words. The last one overlaps the one before it; the words
  # in both have logits of -inf and no label in the last.
  first = index * block_size
  start = jnp.minimum(first, len(embeddings) - block_size)
  words = jax.lax.dynamic_slice_in_dim(embeddings, start, block_size)
  logits = product('rd,cd->rc', x, words, x.dtype)  # [R, C]
  ids = start + jnp.arange(block_size)
  is_new = (ids >= first)[None, :]
  is_label = (labels[:, None] == ids[None, :]) & is_new  # [R, C]
  return start, words, jnp.where(is_new, logits, -jnp.inf), is_label


def _sum_dtype(dtype: jnp.dtype) -> jnp.dtype:
  """The dtype of sums of products of factors in `dtype`."""
  return jnp.promote_types(dtype, jnp.float32)
