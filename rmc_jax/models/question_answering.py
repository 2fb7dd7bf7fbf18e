"""Answers a question after a recurrent core has read a story."""

from collections.abc import Sequence

import haiku as hk
import jax.numpy as jnp

from rmc_jax.checks import positive_int
from rmc_jax.models.memn2n import Sizes
from rmc_jax.ops.position_encoding import embed_sentences
from rmc_jax.ops.position_encoding import unit_scale
from rmc_jax.types import Array
from rmc_jax.unroll import unroll


class QuestionAnswering(hk.Module):
  r"""A core that reads a sentence per step, ReLU MLP and logits.

  With words :math:`x_{ij}` of statement i, the oldest of n first, words
  :math:`q_j` of the question, and position weights :math:`l_j`:

  .. math::

     \begin{array}{ll}
     s_i = \mathrm{core}(\sum_j l_j \cdot E x_{ij}, s_{i-1}) & i = 1 \ldots n \\
     o = \mathrm{core}(v + \sum_j l_j \cdot E q_j, s_n) & \\
     y = \mathrm{Linear}(\mathrm{MLP}(o)) & \text{logits over the vocabulary}
     \end{array}

  The trained vector v tells a question from a statement. The weights are those
  of `rmc_jax.ops.position_encoding` with 'position' and J the words of the
  longest sentence.

  Notes:
    Not the LSTM baseline of Weston et al. 2015, "Towards AI-complete question
    answering", which reads a story and its question word by word.
    Henaff et al. 2017 weight words with trained vectors instead of l, and read
    the slots of an entity network by attention from the question. Here the
    question is one more input, so that every core is read in the same way.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    core: hk.RNNCore,
    vocabulary_size: int,
    embedding_size: int = 64,
    hidden_sizes: Sequence[int] = (128,),
    init_stddev: float = 0.5,
    name: str = 'question_answering',
  ):
    """Constructs the model.

    Args:
      core: any recurrent core.
      vocabulary_size: V, symbols, nil included, of the largest task.
      embedding_size: d, the size of the core's inputs.
      hidden_sizes: layers of the MLP.
      init_stddev: standard deviation of the normal initial values of E and v.
        With 0.5 a sentence of four words has a variance of about 1; with the
        0.1 of memory networks, cores learn much more slowly.
      name: name of the module.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is out of range.
    """
    super().__init__(name=name)
    self._core = core
    self._vocabulary_size = positive_int('vocabulary_size', vocabulary_size, 2)
    self._embedding_size = positive_int('embedding_size', embedding_size)
    for i, size in enumerate(hidden_sizes):
      positive_int(f'hidden_sizes[{i}]', size)
    self._init = hk.initializers.RandomNormal(init_stddev)
    self._mlp = hk.nets.MLP(hidden_sizes, activate_final=True, name='mlp')
    self._logits = hk.Linear(vocabulary_size, name='logits')

  def __call__(
    self, story: Array, question: Array, sizes: Sizes | None = None
  ) -> Array:
    """Computes the logits of the answer.

    Args:
      story: [B, M, J] ids of words, the newest statement first; 0 is nil. Empty
        slots, which follow the oldest statement, do not change the state.
      question: [B, J] ids of words.
      sizes: those of the task, where the arrays have padding beyond them; None
        for the shapes of the arrays.

    Returns:
      [B, V], -inf beyond the vocabulary of the task.
    """
    if sizes is None:
      sizes = Sizes(self._vocabulary_size, *story.shape[1:])
    # The core starts at the oldest statement, or the question if there is none.
    is_read = jnp.cumsum((story > 0).any(-1)[:, ::-1], axis=1) > 0  # [B, M]
    before_start = jnp.pad(~is_read, ((0, 0), (1, 0)), constant_values=True)
    output, _ = unroll(
      self._core,
      self._embed(story, question, sizes).swapaxes(0, 1),  # [M + 1, B, d]
      self._core.initial_state(len(story)),
      reset=before_start.swapaxes(0, 1),
    )
    logits = self._logits(self._mlp(output[-1]))
    in_task = jnp.arange(self._vocabulary_size) < sizes.vocabulary  # [V]
    return jnp.where(in_task[None], logits, -jnp.inf)

  @hk.transparent
  def _embed(self, story: Array, question: Array, sizes: Sizes) -> Array:
    """Returns the core's inputs in the order of reading, [B, M + 1, d]."""
    size = self._embedding_size
    shape = self._vocabulary_size, size
    table = hk.get_parameter('embedding', shape, init=self._init)
    is_nil = jnp.arange(self._vocabulary_size)[:, None] == 0  # [V, 1]
    sentences = jnp.concatenate([story[:, ::-1], question[:, None]], axis=1)
    embedded = embed_sentences(
      jnp.where(is_nil, 0.0, table),
      sentences,
      unit_scale('position', size, sizes.sentence),
      'position',
      columns=sizes.sentence,
    )
    mark = hk.get_parameter('question', (size,), init=self._init)
    return embedded.at[:, -1].add(mark[None])
