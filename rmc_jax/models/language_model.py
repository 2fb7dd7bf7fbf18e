"""A word-level language model with a recurrent core."""

from collections.abc import Sequence

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.cores import StepTrace
from rmc_jax.ops.adaptive_softmax import adaptive_log_probs
from rmc_jax.ops.adaptive_softmax import adaptive_softmax_shapes
from rmc_jax.ops.adaptive_softmax import AdaptiveWeights
from rmc_jax.ops.blocked_softmax import blocked_log_probs
from rmc_jax.ops.blocked_softmax import summed_cross_entropy
from rmc_jax.ops.sampled_softmax import sample_words
from rmc_jax.ops.sampled_softmax import sampled_softmax_cross_entropy
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree
from rmc_jax.unroll import select
from rmc_jax.unroll import unroll

HEADS = ('tied', 'adaptive')


class LanguageModel(hk.Module):
  r"""Embedding, core, projection and a softmax over the vocabulary.

  With the embeddings :math:`E` [V, D] of the words :math:`w_1, w_2, \ldots`:

  .. math::

     \begin{array}{ll}
     o_t, s_t = \mathrm{core}(\mathrm{dropout}(E_{w_t}), s_{t-1}) & \\
     h_t = \mathrm{dropout}(\mathrm{Linear}(o_t)) & [D] \\
     p(w_{t+1} \mid w_1 \ldots w_t) = \mathrm{softmax}(E h_t) & [V]
     \end{array}

  Training and evaluation never create an array of all positions by all words;
  see `rmc_jax.ops.blocked_softmax`.

  Source: Santoro et al. 2018, section 4.3 and appendix A.4: embeddings of width
  512 with dropout 0.5, tied to the output softmax.

  Notes:
    The paper does not say how the core's output is mapped to the width of the
    embeddings, nor whether the softmax has a bias. Here a Linear maps it, and
    there is no bias.
    Embeddings start from a truncated normal with standard deviation D^-1/2, so
    that logits start with a standard deviation of about 1.
    An adaptive softmax has its own weights and cannot be tied.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    core: hk.RNNCore,
    vocab_size: int,
    embedding_size: int = 512,
    embedding_dropout: float = 0.5,
    output_dropout: float = 0.0,
    head: str = 'tied',
    cutoffs: Sequence[int] = (),
    num_sampled: int = 0,
    block_size: int = 8192,
    remat: bool = False,
    name: str = 'language_model',
  ):
    """Constructs the model.

    Args:
      core: any recurrent core.
      vocab_size: V. Ids are sorted by the frequency of the words.
      embedding_size: D.
      embedding_dropout: rate.
      output_dropout: rate at the softmax's input.
      head: 'tied', or 'adaptive' (Grave et al. 2017).
      cutoffs: the first id of each tail of the adaptive softmax.
      num_sampled: words sampled to estimate the training loss of the tied head;
        0 for the exact loss. Evaluation is always exact.
      block_size: words in a block of the softmax.
      remat: whether the backward pass recomputes the core's steps.
      name: name of the module.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is below 1, a dropout rate is not in [0, 1), the head
        is unknown, or an option belongs to the other head.
    """
    super().__init__(name=name)
    self._core = core
    self._vocab_size = positive_int('vocab_size', vocab_size)
    self._size = positive_int('embedding_size', embedding_size)
    self._block_size = positive_int('block_size', block_size)
    self._num_sampled = positive_int('num_sampled', num_sampled, least=0)
    for dropout, rate in {
      'embedding_dropout': embedding_dropout,
      'output_dropout': output_dropout,
    }.items():
      if not 0 <= rate < 1:
        raise ValueError(f'{dropout} must be in [0, 1). Got: {rate}.')
    one_of('head', head, HEADS)
    if head == 'adaptive' and num_sampled:
      raise ValueError(
        "num_sampled must be 0 with head='adaptive', which is always exact. "
        f'Got: {num_sampled}.'
      )
    if head == 'tied' and cutoffs:
      raise ValueError(
        f"cutoffs must be empty with head='tied'. Got: {tuple(cutoffs)}."
      )
    if num_sampled > vocab_size:
      raise ValueError(
        f'num_sampled must be <= vocab_size, {vocab_size}. Got: {num_sampled}.'
      )
    self._dropouts = embedding_dropout, output_dropout
    self._adaptive = (
      adaptive_softmax_shapes(vocab_size, cutoffs, embedding_size)
      if head == 'adaptive'
      else None
    )
    self._remat = remat or None
    self._projection = hk.Linear(embedding_size, name='projection')

  def __call__(
    self,
    inputs: Array,
    state: ArrayTree,
    reset: Array | None = None,
    is_training: bool = False,
  ) -> tuple[Array, ArrayTree]:
    """Computes the input of the softmax at each position.

    Args:
      inputs: [B, T] ids.
      state: the core's state for B examples.
      reset: [B] booleans: where True, the example starts from the core's
        initial state.
      is_training: whether to apply dropout, which needs a key.

    Returns:
      [B, T, D] for the methods below, and the core's next state.
    """
    embedded = self._embeddings()[inputs.swapaxes(0, 1)]  # [T, B, D]
    if reset is not None:
      initial = self._core.initial_state(inputs.shape[0])
      state = select(reset, initial, state)
    embedded = self._dropout(0, embedded, is_training)
    outputs, state = unroll(self._core, embedded, state, remat=self._remat)
    hidden = self._dropout(1, self._projection(outputs), is_training)
    return hidden.swapaxes(0, 1), state

  def trace(self, inputs: Array, state: ArrayTree) -> StepTrace:
    """Returns the trace of an `AttendingCore`, [T, B, ...], like a call."""
    embedded = self._embeddings()[inputs.swapaxes(0, 1)]
    (_, trace), _ = unroll(self._core, embedded, state, return_trace=True)
    return trace

  @hk.transparent
  def cross_entropy(
    self,
    hidden: Array,
    targets: Array,
    weights: Array | None = None,
    is_training: bool = False,
  ) -> tuple[Array, Array]:
    """Sums the cross-entropy in nats.

    Args:
      hidden: [B, T, D] from a call.
      targets: [B, T] ids of the next words.
      weights: [B, T] weights or a boolean mask; None weights each by 1.
      is_training: whether to estimate the loss if `num_sampled` is above 0.

    Returns:
      The sum [] and the total weight [], both float32.
    """
    if is_training and self._num_sampled:
      words = sample_words(
        hk.next_rng_key(), self._num_sampled, self._vocab_size
      )
      return sampled_softmax_cross_entropy(
        hidden, self._embeddings(), targets, words, weights
      )
    return summed_cross_entropy(self.log_probs(hidden, targets), weights)

  @hk.transparent
  def log_probs(self, hidden: Array, targets: Array) -> Array:
    """Returns the exact log probabilities of the targets, [B, T]."""
    if self._adaptive is None:
      return blocked_log_probs(
        hidden, self._embeddings(), targets, block_size=self._block_size
      )
    return adaptive_log_probs(
      hidden,
      self._adaptive_weights(self._adaptive),
      targets,
      block_size=self._block_size,
    )

  @hk.transparent
  def all_log_probs(self, hidden: Array) -> Array:
    """Returns the log probabilities of all words, [..., V], to sample text."""
    if self._adaptive is None:
      logits = jnp.einsum('...d,vd->...v', hidden, self._embeddings())
      return jax.nn.log_softmax(logits)
    weights = self._adaptive_weights(self._adaptive)
    head = jax.nn.log_softmax(hidden @ weights.head.T)  # [..., V_0 + K]
    num_tails = len(weights.tails)
    parts = [head[..., :-num_tails]]
    tails = zip(weights.projections, weights.tails, strict=True)
    for i, (projection, tail) in enumerate(tails):
      own = jax.nn.log_softmax(hidden @ projection @ tail.T)  # [..., V_i]
      cluster = head[..., i - num_tails, None]
      parts.append(own + jnp.broadcast_to(cluster, own.shape))
    return jnp.concatenate(parts, axis=-1)

  @hk.transparent
  def initial_state(self, batch_size: int) -> ArrayTree:
    """Returns the core's initial state."""
    return self._core.initial_state(batch_size)

  @hk.transparent
  def _embeddings(self) -> Array:
    return self._weight('embeddings', (self._vocab_size, self._size))

  @hk.transparent
  def _adaptive_weights(self, shapes: AdaptiveWeights) -> AdaptiveWeights:
    return AdaptiveWeights(
      head=self._weight('head', shapes.head),
      projections=[
        self._weight(f'tail_{i}_projection', shape)
        for i, shape in enumerate(shapes.projections)
      ],
      tails=[
        self._weight(f'tail_{i}', shape) for i, shape in enumerate(shapes.tails)
      ],
    )

  def _weight(self, name: str, shape: tuple[int, int]) -> Array:
    """Returns embeddings [words, width] or a projection [width, less]."""
    fan_in = shape[0] if name.endswith('projection') else shape[1]
    init = hk.initializers.TruncatedNormal(fan_in**-0.5)
    return hk.get_parameter(name, shape, init=init)

  @hk.transparent
  def _dropout(self, which: int, x: Array, is_training: bool) -> Array:
    rate = self._dropouts[which]
    if not is_training or not rate:
      return x
    return hk.dropout(hk.next_rng_key(), rate, x)
