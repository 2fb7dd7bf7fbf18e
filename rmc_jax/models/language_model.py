"""Predicts each word of a text from those before it."""

from collections.abc import Sequence

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.cores import StepTrace
from rmc_jax.cores.memory_matrix import positive_int
from rmc_jax.ops.adaptive_softmax import adaptive_log_probs
from rmc_jax.ops.adaptive_softmax import adaptive_softmax_shapes
from rmc_jax.ops.adaptive_softmax import AdaptiveWeights
from rmc_jax.ops.blocked_softmax import blocked_log_probs
from rmc_jax.ops.blocked_softmax import summed_cross_entropy
from rmc_jax.ops.sampled_softmax import sample_words
from rmc_jax.ops.sampled_softmax import sampled_softmax_cross_entropy
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree
from rmc_jax.unroll import unroll

HEADS = ('tied', 'adaptive')


class LanguageModel(hk.Module):
  r"""Embedding, core, projection, and a softmax over all words.

  With the embeddings :math:`E` [V, D] of the words :math:`w_1, w_2, \ldots`:

  .. math::

     \begin{array}{ll}
     o_t, s_t = \mathrm{core}(\mathrm{dropout}(E_{w_t}), s_{t-1}) & \\
     h_t = \mathrm{dropout}(\mathrm{Linear}(o_t)) & [D] \\
     p(w_{t+1} \mid w_1 \ldots w_t) = \mathrm{softmax}(E h_t) & [V]
     \end{array}

  No array of all words by all positions exists, however many words there are:
  see `rmc_jax.ops.blocked_softmax`.

  Source: Santoro et al. 2018, section 4.3 and appendix A.4: embeddings of 512
  with a dropout of 0.5, tied to the output softmax.

  Notes:
    The paper does not say how the core's output becomes as wide as the
    embeddings, nor of a bias of the softmax: here a Linear, and none.
    Embeddings start from a truncated normal with standard deviation D^-1/2, so
    that logits start with one of about 1.
    An adaptive softmax has weights of its own; it cannot be tied.
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
      vocab_size: V. Ids are in the order of the words' frequency.
      embedding_size: D.
      embedding_dropout: share of the embeddings' numbers left out in training.
      output_dropout: the same for what the softmax sees.
      head: 'tied', or 'adaptive' (Grave et al. 2017).
      cutoffs: of the adaptive softmax, its clusters' first ids.
      num_sampled: words that the loss is estimated from in training, with the
        tied head; 0 for the exact loss. Evaluation is exact always.
      block_size: words at a time in the softmax.
      remat: whether the core's steps are recomputed in the backward pass.
      name: name of the module.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is below 1, a dropout not in [0, 1), an unknown head,
        or options of one head with the other.
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
    if head not in HEADS:
      raise ValueError(f'head must be one of {HEADS}. Got: {head!r}.')
    if head == 'adaptive' and num_sampled:
      raise ValueError(
        "num_sampled is for head='tied': an adaptive softmax is exact. "
        f'Got: {num_sampled}.'
      )
    if head == 'tied' and cutoffs:
      raise ValueError(
        f"cutoffs are for head='adaptive'. Got: {tuple(cutoffs)}."
      )
    if num_sampled > vocab_size:
      raise ValueError(
        f'num_sampled must be at most vocab_size, {vocab_size}. '
        f'Got: {num_sampled}.'
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
    """What the softmax sees at each position, and the state after the last.

    Args:
      inputs: [B, T] ids.
      state: of the core, for B examples.
      reset: [B] booleans: where True the example starts from the core's initial
        state instead.
      is_training: whether there is dropout, for which the transformed function
        needs a key.

    Returns:
      [B, T, D] for the methods below, and the core's state.
    """
    embedded = self._embeddings()[inputs.swapaxes(0, 1)]  # [T, B, D]
    if reset is not None:
      initial = self._core.initial_state(inputs.shape[0])
      state = jax.tree.map(
        lambda new, old: jnp.where(
          reset.reshape(-1, *[1] * (old.ndim - 1)), new, old
        ),
        initial,
        state,
      )
    embedded = self._dropout(0, embedded, is_training)
    outputs, state = unroll(self._core, embedded, state, remat=self._remat)
    hidden = self._dropout(1, self._projection(outputs), is_training)
    return hidden.swapaxes(0, 1), state

  def trace(self, inputs: Array, state: ArrayTree) -> StepTrace:
    """What the core does at each word, [T, B, ...], for analysis.

    Args:
      inputs: [B, T] ids.
      state: as for a call; the core must be an `AttendingCore`.
    """
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
    """Summed cross-entropy in nats, and what it was summed over.

    Args:
      hidden: [B, T, D] of a call.
      targets: [B, T] ids of the words that follow.
      weights: [B, T] how much each counts; None counts each as 1.
      is_training: whether the loss may be estimated, if `num_sampled` says so.

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
    """[B, T] log probabilities of the targets, exact."""
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
    """[..., V], of every word; for writing text, a few positions at a time."""
    if self._adaptive is None:
      logits = jnp.einsum('...d,vd->...v', hidden, self._embeddings())
      return jax.nn.log_softmax(logits)
    weights = self._adaptive_weights(self._adaptive)
    head = jax.nn.log_softmax(hidden @ weights.head.T)  # [..., V_0 + K]
    num_tails = len(weights.tails)
    parts = [head[..., :-num_tails]]
    for i, (projection, tail) in enumerate(
      zip(weights.projections, weights.tails, strict=True)
    ):
      own = jax.nn.log_softmax(hidden @ projection @ tail.T)  # [..., V_i]
      cluster = head[..., i - num_tails, None]
      parts.append(own + jnp.broadcast_to(cluster, own.shape))
    return jnp.concatenate(parts, axis=-1)

  @hk.transparent
  def initial_state(self, batch_size: int) -> ArrayTree:
    """The core's."""
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
    """Rows [words, width], or a projection [width, less]: width decides."""
    fan_in = shape[0] if name.endswith('projection') else shape[1]
    init = hk.initializers.TruncatedNormal(fan_in**-0.5)
    return hk.get_parameter(name, shape, init=init)

  @hk.transparent
  def _dropout(self, which: int, x: Array, is_training: bool) -> Array:
    rate = self._dropouts[which]
    if not is_training or not rate:
      return x
    return hk.dropout(hk.next_rng_key(), rate, x)
