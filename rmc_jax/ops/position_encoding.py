"""Sentences as sums of word vectors, weighted by the positions of the words."""

import jax
import jax.numpy as jnp

from rmc_jax.types import Array

ENCODINGS = ('bow', 'position', 'paper_position')


def embed_sentences(
  table: Array,
  ids: Array,
  scale: Array,
  encoding: str,
  columns: int | Array,
) -> Array:
  r"""Embeds sentences :math:`\sum_j l_j \cdot A_{x_j}`.

  Position weights :math:`l_{kj}` of word j = 1, 2, ... and unit k = 1, ..., d:

    'bow': 1, a bag of words.
    'position': :math:`1 + 4 (k - (d+1)/2) (j - (J+1)/2) / (d J)`.
    'paper_position': :math:`(1 - j/J) - (k/d)(1 - 2j/J)`, with J the words of
      that sentence.

  Source: Sukhbaatar et al. 2015, "End-to-end memory networks", section 4.1;
  'position' is from the authors' MATLAB code, MemN2N-babi-matlab.

  The gradient with respect to the table is a product with bags of words: on a
  CPU, adding to single rows takes twice as long for a thousand sentences. The
  other arguments are constants without gradient.

  Args:
    table: A, [V, d]; the row of nil, 0, should be zero.
    ids: x, [..., J] rows of the table.
    scale: s, [d], of `unit_scale` for the same encoding and columns. Several
      tables are embedded at once as [V, n * d], with scale [n * d].
    encoding: one of ENCODINGS.
    columns: the J of 'position', usually of the longest sentence of a task; []
      if an array.

  Returns:
    [..., d].
  """
  weights = scale, *_word_weights(encoding, ids, columns)
  scale, constant, linear = (w.astype(table.dtype) for w in weights)
  return _weighted_sum(table, scale, ids, constant, linear)


def unit_scale(encoding: str, size: int, columns: int | Array) -> Array:
  """Returns s_k of the position weights l_kj = w_j + s_k v_j, [d]."""
  k = jnp.arange(1.0, size + 1)
  if encoding == 'position':
    return 4 * (k - (size + 1) / 2) / (size * columns)
  return -k / size if encoding == 'paper_position' else jnp.zeros(size)


def _word_weights(
  encoding: str, ids: Array, columns: int | Array
) -> tuple[Array, Array]:
  """Returns w_j and v_j of the position weights, [..., J] each."""
  j = jnp.arange(1.0, ids.shape[-1] + 1)
  j = jnp.broadcast_to(j, ids.shape)
  if encoding == 'position':
    return jnp.ones(ids.shape), j - (columns + 1) / 2
  if encoding == 'paper_position':
    num_words = jnp.maximum((ids > 0).sum(-1, keepdims=True), 1)  # [..., 1]
    return 1 - j / num_words, 1 - 2 * j / num_words
  return jnp.ones(ids.shape), jnp.zeros(ids.shape)


@jax.custom_vjp
def _weighted_sum(
  table: Array, scale: Array, ids: Array, constant: Array, linear: Array
) -> Array:
  r"""Embeds sentences: :math:`\sum_j (w_j + s_k v_j) A_{x_j k}`.

  Args:
    table: A, [V, d].
    scale: s, [d].
    ids: x, [..., J] rows of the table.
    constant: w, [..., J].
    linear: v, [..., J].

  Returns:
    [..., d].
  """
  scale = jnp.expand_dims(scale, range(ids.ndim - 1))  # [..., 1, d]

  # A loop, because XLA does not fuse a sum over gathered rows, and would do an
  # unrolled loop again for each use of the result.
  def add(total, word):
    ids, constant, linear = word  # [...] each
    weights = constant[..., None] + linear[..., None] * scale  # [..., d]
    return total + table[ids] * weights, ()

  words = jax.tree.map(
    lambda x: jnp.moveaxis(x, -1, 0), (ids, constant, linear)
  )
  zeros = jnp.zeros((*ids.shape[:-1], table.shape[1]), table.dtype)
  return jax.lax.scan(add, zeros, words)[0]


def _weighted_sum_forward(table, scale, ids, constant, linear):
  value = _weighted_sum(table, scale, ids, constant, linear)
  return value, (table, scale, ids, constant, linear)


def _weighted_sum_backward(residuals, gradient):
  table, scale, ids, constant, linear = residuals
  symbols = jnp.arange(len(table))[None]
  flat = [x.reshape(-1, x.shape[-1]) for x in (ids, constant, linear, gradient)]
  ids, constant, linear, gradient = flat  # [S, J] and [S, d]
  words = weighted = jnp.zeros(())  # bags [S, V]
  # A loop, because XLA does not fuse a sum over one-hot vectors.
  for j in range(ids.shape[-1]):
    is_symbol = (ids[:, j, None] == symbols).astype(gradient.dtype)
    words += constant[:, j, None] * is_symbol
    weighted += linear[:, j, None] * is_symbol
  d_table = words.T @ gradient + (weighted.T @ gradient) * scale[None]
  return d_table, None, None, None, None


_weighted_sum.defvjp(_weighted_sum_forward, _weighted_sum_backward)
