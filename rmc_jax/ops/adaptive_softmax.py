"""Adaptive softmax: rare words share an entry of the head, and have less width.

The letters of `rmc_jax.ops.blocked_softmax`, and

  K    tails, the clusters of rarer and rarer words
  V_0  words of the head, and V_i of tail i = 1..K; together V
  D_i  width of an embedding in tail i
"""

from collections.abc import Sequence
import itertools
from typing import Any
from typing import NamedTuple

import chex
import jax.numpy as jnp

from rmc_jax.ops.blocked_softmax import blocked_log_probs
from rmc_jax.ops.blocked_softmax import product
from rmc_jax.ops.blocked_softmax import summed_cross_entropy
from rmc_jax.types import Array


class AdaptiveWeights(NamedTuple):
  """What an adaptive softmax is made of, or the shapes of that.

  Attributes:
    head: [V_0 + K, D] embeddings of the most frequent words, then of the tails.
    projections: for each tail [D, D_i].
    tails: for each tail [V_i, D_i] embeddings of its words.
  """

  head: Any
  projections: Sequence[Any]
  tails: Sequence[Any]


def adaptive_softmax_shapes(
  vocab_size: int,
  cutoffs: Sequence[int],
  width: int,
  shrink: int = 4,
) -> AdaptiveWeights:
  """The shapes of the weights, for ids sorted by frequency.

  Args:
    vocab_size: V.
    cutoffs: c_1 < ... < c_K < V. Words 0..c_1-1 are the head's, those of
      c_i..c_{i+1}-1 are tail i's, and the last tail ends with V.
    width: D.
    shrink: tail i has width D / shrink^i, rounded down.

  Returns:
    Shapes in place of arrays.

  Raises:
    ValueError: cutoffs that are none or do not rise from 1 or more to less than
      V, or a tail without width.
  """
  bounds = (0, *cutoffs, vocab_size)
  sizes = [b - a for a, b in itertools.pairwise(bounds)]  # V_0, ..., V_K
  if not cutoffs or min(sizes) < 1:
    raise ValueError(
      'cutoffs must be one or more, and rise from 1 at least to below the '
      f'vocabulary size {vocab_size}. Got: {tuple(cutoffs)}.'
    )
  widths = [width // shrink**i for i in range(len(sizes))]  # D, D_1, ..., D_K
  if widths[-1] < 1:
    raise ValueError(
      f'width must be {shrink ** len(cutoffs)} at least, for the last of '
      f'{len(cutoffs)} tails to have 1 of it over {shrink}^{len(cutoffs)}. '
      f'Got: {width}.'
    )
  return AdaptiveWeights(
    head=(sizes[0] + len(cutoffs), width),
    projections=[(width, w) for w in widths[1:]],
    tails=list(zip(sizes[1:], widths[1:], strict=True)),
  )


def adaptive_softmax_cross_entropy(
  hidden: Array,
  adaptive: AdaptiveWeights,
  labels: Array,
  weights: Array | None = None,
  *,
  block_size: int,
  compute_dtype: jnp.dtype | None = None,
) -> tuple[Array, Array]:
  r"""Summed cross-entropy between an adaptive softmax and the labels, in nats.

  .. math:: -\sum_i w_i \log p_i(y_i), \quad \sum_i w_i

  Reduction: SUM over all leading axes. The arguments but the weights, and the
  errors, are those of `adaptive_log_probs`.

  Args:
    hidden: [..., D].
    adaptive: the weights of the softmax.
    labels: [...] integers in 0..V-1; any value where the weight is 0. Any other
      label with a weight gives nan, which the update refuses to apply.
    weights: [...] how much each label counts, 0 to leave it out (a mask of
      bools will do); None counts each as 1.
    block_size: words at a time.
    compute_dtype: dtype of the factors of products, or None.

  Returns:
    The sum [] and the total weight [], both float32 (or wider, if the factors
    are).
  """
  log_probs = adaptive_log_probs(
    hidden,
    adaptive,
    labels,
    block_size=block_size,
    compute_dtype=compute_dtype,
  )
  return summed_cross_entropy(log_probs, weights)


def adaptive_log_probs(
  hidden: Array,
  adaptive: AdaptiveWeights,
  labels: Array,
  *,
  block_size: int,
  compute_dtype: jnp.dtype | None = None,
) -> Array:
  r"""Log probability of each label, from the head and the tail that has it.

  .. math::

     \log p(y) = \begin{cases}
       \log p_0(y) & y < c_1 \\
       \log p_0(c_1 + i - 1) + \log p_i(y - c_i) & c_i \le y < c_{i+1}
     \end{cases}

     p_0 = \mathrm{softmax}(H h), \qquad
     p_i = \mathrm{softmax}(E_i P_i^T h)

  with head H, projections P and tails E (Grave et al. 2017, "Efficient softmax
  approximation for GPUs"). All V probabilities sum to 1: it is a model of its
  own, whose loss is exact.

  Departures: every row meets every tail, as shapes must be static, where the
  authors and PyTorch's `AdaptiveLogSoftmaxWithLoss` pick the rows that a tail
  is for. No array of [..., V_i] exists: head and tails are `blocked_log_probs`.
  There are no biases, as by default in PyTorch's.

  Args:
    hidden: [..., D].
    adaptive: the weights, of `adaptive_softmax_shapes`.
    labels: [...] integers in 0..V-1; any other gives nan.
    block_size: words at a time.
    compute_dtype: dtype of the products' factors; None leaves them as they are.
      Sums are in float32 or wider in any case.

  Returns:
    [...], in float32 (or wider, if the factors are).

  Raises:
    AssertionError: shapes that do not fit the hidden rows or the labels.
    ValueError: a head without a word of its own, projections and tails that
      are not as many, or a block size below 1.
  """
  head, projections, tails = adaptive
  num_words = len(head) - len(tails)  # V_0
  if len(projections) != len(tails) or num_words < 1:
    raise ValueError(
      f'The head has {len(head)} rows, with {len(projections)} projections '
      f'and {len(tails)} tails; expected a projection for each tail, and a '
      'row for each and more. adaptive_softmax_shapes() gives what fits.'
    )
  in_head, in_tails = labels, []
  first = num_words
  for projection, tail in zip(projections, tails, strict=True):
    chex.assert_shape(projection, (hidden.shape[-1], tail.shape[-1]))
    is_here = (labels >= first) & (labels < first + len(tail))
    in_head = jnp.where(is_here, num_words + len(in_tails), in_head)
    dtype = compute_dtype or jnp.promote_types(hidden.dtype, projection.dtype)
    log_probs = blocked_log_probs(
      product('...d,dp->...p', hidden, projection, dtype),
      tail,
      jnp.where(is_here, labels - first, 0),
      block_size=block_size,
      compute_dtype=compute_dtype,
    )
    in_tails.append(jnp.where(is_here, log_probs, 0.0))
    first += len(tail)
  # A label of V or more is beyond the head as well, which gives its nan.
  log_probs = blocked_log_probs(
    hidden, head, in_head, block_size=block_size, compute_dtype=compute_dtype
  )
  return sum(in_tails, start=log_probs)
