"""Exact softmax over a large vocabulary, one block of words at a time.

The letters of this file and of the other softmaxes:

  V  words of the vocabulary
  D  width of an embedding, and of the hidden rows that are compared with it
  R  rows: the positions of all leading axes together
  C  words of a block
"""

import math

import chex
import jax
import jax.numpy as jnp

from rmc_jax.types import Array


def blocked_softmax_cross_entropy(
  hidden: Array,
  embeddings: Array,
  labels: Array,
  weights: Array | None = None,
  *,
  block_size: int,
  bias: Array | None = None,
  compute_dtype: jnp.dtype | None = None,
) -> tuple[Array, Array]:
  r"""Summed cross-entropy between softmax(h E^T + b) and the labels, in nats.

  .. math:: -\sum_i w_i \log p_i(y_i), \quad \sum_i w_i

  What `rmc_jax.losses.softmax_cross_entropy` gives for the logits
  :math:`h E^T + b`, which are here nowhere in memory together; the arguments
  but the weights, and the errors, are those of `blocked_log_probs`.

  Reduction: SUM over all leading axes.

  Args:
    hidden: [..., D].
    embeddings: [V, D].
    labels: [...] integers in 0..V-1; any value where the weight is 0. Any other
      label with a weight gives nan, which the update refuses to apply.
    weights: [...] how much each label counts, 0 to leave it out (a mask of
      bools will do); None counts each as 1.
    block_size: C.
    bias: [V], or None.
    compute_dtype: dtype of the factors of products, or None.

  Returns:
    The sum [] and the total weight [], both float32 (or wider, if the factors
    are).
  """
  log_probs = blocked_log_probs(
    hidden,
    embeddings,
    labels,
    block_size=block_size,
    bias=bias,
    compute_dtype=compute_dtype,
  )
  return summed_cross_entropy(log_probs, weights)


def blocked_log_probs(
  hidden: Array,
  embeddings: Array,
  labels: Array,
  *,
  block_size: int,
  bias: Array | None = None,
  compute_dtype: jnp.dtype | None = None,
) -> Array:
  r"""Log probability of each label, without an array of [..., V].

  .. math:: \log p_i(y_i) = z_{i y_i} - \log \sum_v e^{z_{iv}}, \qquad
            z_{iv} = h_i \cdot e_v + b_v

  A loop over blocks of C words keeps the largest logit m so far and the sum s
  of the exponentials relative to it (Milakov and Gimelshein 2018, "Online
  normalizer calculation for softmax"):

  .. math:: m' = \max(m, \max_v z_v), \qquad
            s' = s \, e^{m - m'} + \sum_v e^{z_v - m'}

  The backward pass forms the logits of each block again, for
  :math:`d z_{iv} = g_i ([v = y_i] - p_i(v))`. All told that is four products of
  the size of the logits for three, and memory for R * C logits at a time for
  R * V. Leading axes are one set of rows; under `jax.vmap` in their place, the
  gradient of the embeddings would exist once for each example.

  The gradient is in reverse mode only. Float16 factors would lose the small
  probabilities in it; bfloat16 keeps them.

  Args:
    hidden: [..., D].
    embeddings: [V, D]; V need not be a multiple of C.
    labels: [...] integers in 0..V-1; any other gives nan.
    block_size: C; one of V or more is V.
    bias: [V], or None.
    compute_dtype: dtype of the products' factors; None leaves them as they are.
      Sums are in float32 or wider in any case.

  Returns:
    [...], in float32 (or wider, if the factors are).

  Raises:
    AssertionError: the shapes or the type of labels do not fit.
    ValueError: a block size below 1.
  """
  vocab_size = len(embeddings)
  chex.assert_type(labels, int)
  chex.assert_shape(labels, hidden.shape[:-1])
  chex.assert_shape(embeddings, (vocab_size, hidden.shape[-1]))
  if bias is not None:
    chex.assert_shape(bias, (vocab_size,))
  if block_size < 1:
    raise ValueError(f'block_size must be >= 1. Got: {block_size}.')
  log_probs = _differentiable_log_probs(
    min(block_size, vocab_size),
    compute_dtype or jnp.promote_types(hidden.dtype, embeddings.dtype),
    hidden.reshape(math.prod(labels.shape), hidden.shape[-1]),
    embeddings,
    bias,
    labels.reshape(-1),
  )  # [R]
  return nan_unless_words(log_probs.reshape(labels.shape), labels, vocab_size)


def summed_cross_entropy(
  log_probs: Array, weights: Array | None
) -> tuple[Array, Array]:
  """-sum w log p and sum w, of [...] both; any log p where the weight is 0."""
  if weights is None:
    return -log_probs.sum(), jnp.asarray(log_probs.size, log_probs.dtype)
  chex.assert_shape(weights, log_probs.shape)
  weights = weights.astype(log_probs.dtype)
  # Not a plain product: a padded label may be out of range, and 0 * nan is nan.
  weighted = jnp.where(weights == 0, 0.0, weights * log_probs)
  return -weighted.sum(), weights.sum()


def nan_unless_words(log_probs: Array, labels: Array, vocab_size: int) -> Array:
  """The log probabilities [...], nan where the label is not in 0..V-1."""
  return jnp.where((labels >= 0) & (labels < vocab_size), log_probs, jnp.nan)


def product(pattern: str, x: Array, y: Array, dtype: jnp.dtype) -> Array:
  """An einsum with factors in `dtype`, summed in float32 or wider."""
  return jnp.einsum(
    pattern,
    x.astype(dtype),
    y.astype(dtype),
    preferred_element_type=_sums(dtype),
  )


def _row_log_probs(
  block_size: int,
  dtype: jnp.dtype,
  hidden: Array,
  embeddings: Array,
  bias: Array | None,
  labels: Array,
) -> Array:
  """`blocked_log_probs` of [R, D] rows; anything for a label out of range."""
  return _forward(block_size, dtype, hidden, embeddings, bias, labels)[0]


def _forward(block_size, dtype, hidden, embeddings, bias, labels):
  x = hidden.astype(dtype)

  def add_block(carry, index):
    peak, total, own = carry  # m, s and z of the label, each [R]
    _, _, logits, is_label = _block(
      index, block_size, x, embeddings, bias, labels
    )
    new_peak = jnp.maximum(peak, logits.max(axis=-1))
    total *= jnp.exp(peak - new_peak)
    total += jnp.exp(logits - new_peak[:, None]).sum(axis=-1)
    own += jnp.where(is_label, logits, 0.0).sum(axis=-1)
    return (new_peak, total, own), None

  zeros = jnp.zeros(len(x), _sums(dtype))
  # Not -inf: a bias of -inf forbids a word, and may forbid a block of them.
  lowest = jnp.full_like(zeros, jnp.finfo(zeros.dtype).min)
  (peak, total, own), _ = jax.lax.scan(
    add_block,
    (lowest, zeros, zeros),
    jnp.arange(_num_blocks(embeddings, block_size)),
  )
  # In this order: two large numbers first, whose difference is exact.
  log_probs = (own - peak) - jnp.log(total)
  return log_probs, (hidden, embeddings, bias, labels, peak, total)


def _backward(block_size, dtype, kept, g):
  hidden, embeddings, bias, labels, peak, total = kept
  x = hidden.astype(dtype)

  def add_block(carry, index):
    d_hidden, d_embeddings, d_bias = carry
    start, words, logits, is_label = _block(
      index, block_size, x, embeddings, bias, labels
    )
    probs = jnp.exp(logits - peak[:, None]) / total[:, None]
    d_logits = g[:, None] * (is_label - probs)  # [R, C]
    d_hidden += product('rc,cd->rd', d_logits, words, dtype)
    d_words = product('rc,rd->cd', d_logits, x, dtype)
    d_embeddings = _put(d_embeddings, d_words, start)
    if bias is not None:
      d_bias = _put(d_bias, d_logits.sum(axis=0), start)
    return (d_hidden, d_embeddings, d_bias), None

  # From the last block to the first: where the last one reaches back into the
  # one before it, its zeros are overwritten.
  (d_hidden, d_embeddings, d_bias), _ = jax.lax.scan(
    add_block,
    (
      jnp.zeros(hidden.shape, _sums(dtype)),
      jnp.zeros_like(embeddings),
      None if bias is None else jnp.zeros_like(bias),
    ),
    jnp.arange(_num_blocks(embeddings, block_size)),
    reverse=True,
  )
  return d_hidden.astype(hidden.dtype), d_embeddings, d_bias, None


_differentiable_log_probs = jax.custom_vjp(
  _row_log_probs, nondiff_argnums=(0, 1)
)
_differentiable_log_probs.defvjp(_forward, _backward)


def _num_blocks(embeddings: Array, block_size: int) -> int:
  return -(-len(embeddings) // block_size)


def _block(
  index: Array,
  block_size: int,
  x: Array,
  embeddings: Array,
  bias: Array | None,
  labels: Array,
) -> tuple[Array, Array, Array, Array]:
  """One block of words: where it starts, its embeddings, logits and labels.

  Every block has C words. The last one starts early enough for that, and its
  words that the one before has had get logits of -inf and no label.

  Args:
    index: [] the number of the block.
    block_size: C.
    x: [R, D] in the dtype of factors.
    embeddings: [V, D].
    bias: [V], or None.
    labels: [R].

  Returns:
    The first word [], the embeddings [C, D], the logits [R, C], and where a
    logit is that of the row's label [R, C].
  """
  first = index * block_size
  start = jnp.minimum(first, len(embeddings) - block_size)
  words = jax.lax.dynamic_slice_in_dim(embeddings, start, block_size)
  logits = product('rd,cd->rc', x, words, x.dtype)
  if bias is not None:
    part = jax.lax.dynamic_slice_in_dim(bias, start, block_size)
    logits += part.astype(logits.dtype)[None, :]
  ids = start + jnp.arange(block_size)
  is_new = (ids >= first)[None, :]
  is_label = (labels[:, None] == ids[None, :]) & is_new
  return start, words, jnp.where(is_new, logits, -jnp.inf), is_label


def _put(whole: Array, part: Array, start: Array) -> Array:
  return jax.lax.dynamic_update_slice_in_dim(
    whole, part.astype(whole.dtype), start, axis=0
  )


def _sums(dtype: jnp.dtype) -> jnp.dtype:
  """What is summed in, for factors of `dtype`."""
  return jnp.promote_types(dtype, jnp.float32)
