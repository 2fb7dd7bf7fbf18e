"""Adaptive softmax: clusters of rare words with narrower embeddings.

Shapes use the letters of `rmc_jax.ops.blocked_softmax` and

  K    tails, clusters of increasingly rare words
  V_0  words of the head; tail i = 1..K has V_i, and together they are V
  D_i  width of the embeddings in tail i
"""

from collections.abc import Sequence
import itertools
from typing import Any
from typing import NamedTuple

import chex
import jax.numpy as jnp

from rmc_jax.ops.blocked_softmax import blocked_log_probs
from rmc_jax.ops.blocked_softmax import product
from rmc_jax.types import Array


class AdaptiveWeights(NamedTuple):
  """The weights of an adaptive softmax, or their shapes.

  Attributes:
    head: [V_0 + K, D] embeddings of the most frequent words and of the tails.
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
  """Returns the shapes of the weights, for ids sorted by frequency.

  Args:
    vocab_size: V.
    cutoffs: 1 <= c_1 < ... < c_K < V. The head has words 0..c_1-1, tail i words
      c_i..c_{i+1}-1, and the last tail ends with V-1.
    width: D.
    shrink: tail i has width D / shrink^i, rounded down.

  Raises:
    ValueError: `cutoffs` is empty or not increasing within 1..V-1, or a tail
      would have width 0.
  """
  bounds = (0, *cutoffs, vocab_size)
  sizes = [b - a for a, b in itertools.pairwise(bounds)]  # V_0, ..., V_K
  if not cutoffs or min(sizes) < 1:
    raise ValueError(
      'cutoffs must be one or more increasing ids in '
      f'1..{vocab_size - 1}. Got: {tuple(cutoffs)}.'
    )
  widths = [width // shrink**i for i in range(len(sizes))]  # D, D_1, ..., D_K
  if widths[-1] < 1:
    raise ValueError(
      f'width must be at least {shrink ** len(cutoffs)}, as the last tail has '
      f'width / {shrink}^{len(cutoffs)}. Got: {width}.'
    )
  return AdaptiveWeights(
    head=(sizes[0] + len(cutoffs), width),
    projections=[(width, w) for w in widths[1:]],
    tails=list(zip(sizes[1:], widths[1:], strict=True)),
  )


def adaptive_log_probs(
  hidden: Array,
  adaptive: AdaptiveWeights,
  labels: Array,
  *,
  block_size: int,
) -> Array:
  r"""Returns the log probability of each label from the head and its tail.

  .. math::

     \log p(y) = \begin{cases}
       \log p_0(y) & y < c_1 \\
       \log p_0(c_1 + i - 1) + \log p_i(y - c_i) & c_i \le y < c_{i+1}
     \end{cases}

     p_0 = \mathrm{softmax}(H h), \qquad
     p_i = \mathrm{softmax}(E_i P_i^T h)

  with head H, projections P and tails E (Grave et al. 2017, "Efficient softmax
  approximation for GPUs"). All V probabilities sum to 1, so the loss is exact.

  Departures: every tail is evaluated for every row, because shapes must be
  static; the authors and PyTorch's `AdaptiveLogSoftmaxWithLoss` select the rows
  of each tail. Head and tails use `blocked_log_probs`, so no [..., V_i] array
  exists. There are no biases, as by default in PyTorch.

  Args:
    hidden: [..., D].
    adaptive: weights with the shapes of `adaptive_softmax_shapes`.
    labels: [...] integers in 0..V-1; any other label gives nan.
    block_size: words at a time.

  Returns:
    [...] log probabilities, in float32 or wider.

  Raises:
    AssertionError: shapes do not match.
    ValueError: the head has no word, the numbers of projections and tails
      differ, or `block_size` is below 1.
  """
  head, projections, tails = adaptive
  num_words = len(head) - len(tails)  # V_0
  if len(projections) != len(tails) or num_words < 1:
    raise ValueError(
      f'The head has {len(head)} rows, with {len(projections)} projections '
      f'and {len(tails)} tails; expected one projection for each tail, and '
      'more rows than tails. adaptive_softmax_shapes() returns valid shapes.'
    )
  in_head, in_tails = labels, []
  first = num_words
  for projection, tail in zip(projections, tails, strict=True):
    chex.assert_shape(projection, (hidden.shape[-1], tail.shape[-1]))
    is_here = (labels >= first) & (labels < first + len(tail))
    in_head = jnp.where(is_here, num_words + len(in_tails), in_head)
    dtype = jnp.promote_types(hidden.dtype, projection.dtype)
    log_probs = blocked_log_probs(
      product('...d,dp->...p', hidden, projection, dtype),
      tail,
      jnp.where(is_here, labels - first, 0),
      block_size=block_size,
    )
    in_tails.append(jnp.where(is_here, log_probs, 0.0))
    first += len(tail)
  # A label of V or more is out of range for the head too, which gives nan.
  log_probs = blocked_log_probs(hidden, head, in_head, block_size=block_size)
  return sum(in_tails, start=log_probs)
