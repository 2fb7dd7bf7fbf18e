"""Sampled softmax: estimates the loss of a large vocabulary from a sample.

For training only; evaluation uses the exact softmax. Shapes use the letters of
`rmc_jax.ops.blocked_softmax` and

  S  sampled words
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from rmc_jax.ops.blocked_softmax import nan_unless_words
from rmc_jax.ops.blocked_softmax import product
from rmc_jax.ops.blocked_softmax import summed_cross_entropy
from rmc_jax.types import Array


class Sample(NamedTuple):
  """Words drawn without replacement.

  Attributes:
    ids: [S] the words, in the order in which they arrived.
    threshold: [] the arrival time of the first word outside the sample;
      infinite if the sample holds all V words.
  """

  ids: Array
  threshold: Array


def sampled_softmax_cross_entropy(
  hidden: Array,
  embeddings: Array,
  labels: Array,
  sample: Sample,
  weights: Array | None = None,
) -> tuple[Array, Array]:
  r"""Sums the cross-entropy of each label against the sampled words.

  .. math::

     -\sum_i w_i \left(\tilde z_{i y_i} - \log \Big(
       e^{\tilde z_{i y_i}} + \sum_{s \in S, s \ne y_i} e^{\tilde z_{is}}
     \Big)\right), \quad \sum_i w_i, \qquad
     \tilde z_{iv} = h_i \cdot e_v - \log q_v

  where q_v is the expected count of v in the sample (`expected_count`). This is
  TensorFlow's `sampled_softmax_loss` without accidental hits, after Jean et al.
  2015, "On using very large target vocabulary for neural machine translation".
  If words entered the sample independently with probability q, it would be the
  exact log probability of the label given that it is one of these words. With
  S = V it is the exact loss. It keeps arrays of [..., S] for the backward pass,
  and none of [..., V].

  Reduction: SUM over all leading axes. All rows share one sample.

  Args:
    hidden: [..., D].
    embeddings: [V, D], in the order of the words' frequency.
    labels: [...] integers in 0..V-1; any value where the weight is 0. Any other
      label gives nan.
    sample: from `sample_words`, with the same V.
    weights: [...] weights or a boolean mask; None weights each label by 1.

  Returns:
    The sum [] and the total weight [], in float32 or wider.

  Raises:
    AssertionError: shapes do not match, or labels are not integers.
  """
  vocab_size = len(embeddings)
  chex.assert_type(labels, int)
  chex.assert_shape(labels, hidden.shape[:-1])
  chex.assert_shape(embeddings, (vocab_size, hidden.shape[-1]))
  dtype = jnp.promote_types(hidden.dtype, embeddings.dtype)

  def offset(ids):
    return -jnp.log(expected_count(ids, sample.threshold, vocab_size))

  # A padded label out of range would bring nan into the gradients.
  words = jnp.clip(labels, 0, vocab_size - 1)
  own = product('...d,...d->...', hidden, embeddings[words], dtype)
  own += offset(words)  # [...]
  others = product('...d,sd->...s', hidden, embeddings[sample.ids], dtype)
  others += jnp.broadcast_to(offset(sample.ids), others.shape)
  is_own = words[..., None] == jnp.broadcast_to(sample.ids, others.shape)
  others = jnp.where(is_own, -jnp.inf, others)  # [..., S]
  logits = jnp.concatenate([own[..., None], others], axis=-1)
  log_probs = jax.nn.log_softmax(logits)[..., 0]
  return summed_cross_entropy(
    nan_unless_words(log_probs, labels, vocab_size), weights
  )


def sample_words(key: Array, num_sampled: int, vocab_size: int) -> Sample:
  r"""Draws S distinct words from `log_uniform_prob` without replacement.

  Word v arrives at time :math:`T_v = E_v / P(v)` with :math:`E_v` exponential
  of mean 1. The first S arrivals are the sample, which has the distribution of
  successive draws without replacement (Efraimidis and Spirakis 2006).

  Departure from TensorFlow's `log_uniform_candidate_sampler(unique=True)`,
  whose samples have the same distribution: it draws until S words differ and
  uses the number of draws as the threshold of `expected_count`. Here the
  threshold is the arrival time of the next word, which needs no loop of unknown
  length, and sums over the sample weighted by 1 / q are unbiased estimates of
  sums over the vocabulary (Cohen and Kaplan 2008, "Sketch-based estimation of
  subpopulation-weight").

  Args:
    key: consumed; use a new one for each update.
    num_sampled: S.
    vocab_size: V. The cost is that of V exponential draws and a top S + 1.

  Raises:
    ValueError: `num_sampled` is not in 1..V.
  """
  if not 1 <= num_sampled <= vocab_size:
    raise ValueError(
      f'num_sampled must be in 1..{vocab_size}, the vocabulary size: no word '
      f'is drawn twice. Got: {num_sampled}.'
    )
  probs = log_uniform_prob(jnp.arange(vocab_size), vocab_size)
  times = jax.random.exponential(key, [vocab_size]) / probs
  times = jnp.append(times, jnp.inf)  # The threshold if S = V.
  negative, ids = jax.lax.top_k(-times, num_sampled + 1)
  return Sample(ids[:-1], -negative[-1])


def expected_count(ids: Array, threshold: Array, vocab_size: int) -> Array:
  r"""Returns the probability that each word arrives before the threshold.

  .. math:: q_v = 1 - e^{-P(v) \tau}

  The threshold :math:`\tau` is that of the `Sample`.
  """
  return -jnp.expm1(-log_uniform_prob(ids, vocab_size) * threshold)


def log_uniform_prob(ids: Array, vocab_size: int) -> Array:
  r"""Returns word probabilities close to Zipf's law.

  .. math:: P(v) = \frac{\log(v + 2) - \log(v + 1)}{\log(V + 1)}

  Words 0..V-1 are in the order of their frequency, and P sums to 1 over them.
  """
  return jnp.log1p(1.0 / (ids + 1)) / jnp.log(vocab_size + 1.0)
