"""Sampled softmax: the loss of a large vocabulary, estimated from part of it.

For training alone; what is reported comes from the exact softmax. The letters
of `rmc_jax.ops.blocked_softmax`, and

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
    ids: [S] the words, in the order in which they came.
    threshold: [] when the first word came that is no more part of it; infinite
      if all V words are.
  """

  ids: Array
  threshold: Array


def sampled_softmax_cross_entropy(
  hidden: Array,
  embeddings: Array,
  labels: Array,
  sample: Sample,
  weights: Array | None = None,
  *,
  bias: Array | None = None,
  compute_dtype: jnp.dtype | None = None,
) -> tuple[Array, Array]:
  r"""Summed cross-entropy of each label among itself and the sampled words.

  .. math::

     -\sum_i w_i \left(\tilde z_{i y_i} - \log \Big(
       e^{\tilde z_{i y_i}} + \sum_{s \in S, s \ne y_i} e^{\tilde z_{is}}
     \Big)\right), \quad \sum_i w_i, \qquad
     \tilde z_{iv} = h_i \cdot e_v + b_v - \log q_v

  where q_v is how many times v was expected in the sample (`expected_count`).
  This is TensorFlow's `sampled_softmax_loss`, accidental hits removed (after
  Jean et al. 2015, "On using very large target vocabulary for neural machine
  translation"). Were each word in the sample with probability q on its own, it
  would be the exact log probability of the label given that it is one of these
  words. With S = V it is the exact loss. It keeps arrays of [..., S] for the
  backward pass, and none of [..., V].

  Reduction: SUM over all leading axes. All rows share one sample.

  Args:
    hidden: [..., D].
    embeddings: [V, D], in the order of the words' frequency.
    labels: [...] integers in 0..V-1; any value where the weight is 0. Any other
      label with a weight gives nan, which the update refuses to apply.
    sample: of `sample_words`, with the same V.
    weights: [...] how much each label counts, 0 to leave it out (a mask of
      bools will do); None counts each as 1.
    bias: [V], or None.
    compute_dtype: dtype of the products' factors; None leaves them as they are.
      Sums are in float32 or wider in any case.

  Returns:
    The sum [] and the total weight [], both float32 (or wider, if the factors
    are).

  Raises:
    AssertionError: the shapes or the type of labels do not fit.
  """
  vocab_size = len(embeddings)
  chex.assert_type(labels, int)
  chex.assert_shape(labels, hidden.shape[:-1])
  chex.assert_shape(embeddings, (vocab_size, hidden.shape[-1]))
  if bias is not None:
    chex.assert_shape(bias, (vocab_size,))
  dtype = compute_dtype or jnp.promote_types(hidden.dtype, embeddings.dtype)

  def offset(ids):
    count = expected_count(ids, sample.threshold, vocab_size)
    return -jnp.log(count) + (0.0 if bias is None else bias[ids])

  # In range, so that a padded label brings no nan into the gradients.
  words = jnp.clip(labels, 0, vocab_size - 1)
  own = product('...d,...d->...', hidden, embeddings[words], dtype)
  own += offset(words)  # [...]
  others = product('...d,sd->...s', hidden, embeddings[sample.ids], dtype)
  others += jnp.broadcast_to(offset(sample.ids), others.shape)
  is_own = jnp.expand_dims(words, -1) == jnp.broadcast_to(
    sample.ids, others.shape
  )
  others = jnp.where(is_own, -jnp.inf, others)  # [..., S]
  logits = jnp.concatenate([jnp.expand_dims(own, -1), others], axis=-1)
  log_probs = jax.nn.log_softmax(logits)[..., 0]
  return summed_cross_entropy(
    nan_unless_words(log_probs, labels, vocab_size), weights
  )


def sample_words(key: Array, num_sampled: int, vocab_size: int) -> Sample:
  r"""Draws S different words, where a word comes with `log_uniform_prob`.

  Word v comes at time :math:`T_v = E_v / P(v)` with :math:`E_v` exponential of
  mean 1, and the first S words to come are the sample: drawn one after the
  other without replacement (Efraimidis and Spirakis 2006).

  Departure from TensorFlow's `log_uniform_candidate_sampler(unique=True)`,
  which has the same distribution of samples: it draws until S words differ and
  takes the number of draws for the time of `expected_count`. Here that is when
  the next word came: no loop of unknown length, and with weights 1 / q the sum
  of anything over the sample is without bias that over the vocabulary (Cohen
  and Kaplan 2008, "Sketch-based estimation of subpopulation-weight").

  Args:
    key: consumed; a new one for each update.
    num_sampled: S.
    vocab_size: V.

  Returns:
    The sample. Its cost is noise for V words and finding the S + 1 first.

  Raises:
    ValueError: S is not in 1..V.
  """
  if not 1 <= num_sampled <= vocab_size:
    raise ValueError(
      f'num_sampled must be 1 at least and the vocabulary size {vocab_size} '
      f'at most, as no word is drawn twice. Got: {num_sampled}.'
    )
  probs = log_uniform_prob(jnp.arange(vocab_size), vocab_size)
  times = jax.random.exponential(key, [vocab_size]) / probs
  times = jnp.append(times, jnp.inf)  # After the last word comes nothing.
  negative, ids = jax.lax.top_k(-times, num_sampled + 1)
  return Sample(ids[:-1], -negative[-1])


def expected_count(ids: Array, threshold: Array, vocab_size: int) -> Array:
  r"""How likely each word is to have come before the threshold.

  .. math:: q_v = 1 - e^{-P(v) \tau}

  Args:
    ids: [...] words.
    threshold: [], as in `Sample`.
    vocab_size: V.

  Returns:
    [...] in 0..1.
  """
  return -jnp.expm1(-log_uniform_prob(ids, vocab_size) * threshold)


def log_uniform_prob(ids: Array, vocab_size: int) -> Array:
  r"""Zipf's law, nearly, for words in the order of their frequency.

  .. math:: P(v) = \frac{\log(v + 2) - \log(v + 1)}{\log(V + 1)}

  Args:
    ids: [...] in 0..V-1.
    vocab_size: V.

  Returns:
    [...], which sum to 1 over all words.
  """
  return jnp.log1p(1.0 / (ids + 1)) / jnp.log(vocab_size + 1.0)
