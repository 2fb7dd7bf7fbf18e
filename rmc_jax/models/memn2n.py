"""End-to-end memory networks: attention over a memory of sentences, in hops."""

import itertools
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.ops.position_encoding import embed_sentences
from rmc_jax.ops.position_encoding import ENCODINGS
from rmc_jax.ops.position_encoding import unit_scale
from rmc_jax.types import Array

TYINGS = ('adjacent', 'layerwise')


class Sizes(NamedTuple):
  """The sizes of one task in arrays that are padded for several tasks.

  Integers, or [] arrays that differ between the members of an ensemble.

  Attributes:
    vocabulary: V, symbols of the task, nil included.
    memory: M, the statements that its memory holds.
    sentence: J, words of its longest sentence.
  """

  vocabulary: int | Array
  memory: int | Array
  sentence: int | Array


class MemN2N(hk.Module):
  r"""Answers questions about a story by attending to its sentences.

  With words :math:`x_{ij}` of statement i, words :math:`q_j` of the question,
  position weights :math:`l_j` and time vectors :math:`T(i)`, hop k computes

  .. math::

     \begin{array}{ll}
     m_i = \sum_j l_j \cdot A^k x_{ij} + T_A^k(i) \\
     c_i = \sum_j l_j \cdot C^k x_{ij} + T_C^k(i) \\
     p_i = \mathrm{softmax}_i(u_k^\top m_i) \\
     u_{k+1} = u_k + \sum_i p_i c_i
     \end{array}

  from :math:`u_1 = \sum_j l_j \cdot B q_j`; the logits are :math:`W u_{K+1}`.

  Tying of the matrices, whose rows are the symbols:

    'adjacent': :math:`A^{k+1} = C^k`, :math:`B = A^1`, :math:`W = C^K`.
    'layerwise': one A and one C for all hops, B and W of their own, and
      :math:`u_{k+1} = H u_k + \sum_i p_i c_i`.

  The position weights are those of `rmc_jax.ops.position_encoding`. With
  'position', as in the authors' code, the longest sentence of the task has
  J - 1 words, and T is an embedded word in column J.

  Source: Sukhbaatar et al. 2015, "End-to-end memory networks", sections 2 and
  4.1, and the authors' MATLAB code, MemN2N-babi-matlab.

  Notes:
    As in that code, time vectors are further rows of A and C. They are also
    classes of W where it is tied, though never the answer.
    As in that code, an empty slot of the memory takes part in the softmax, with
    :math:`m_i = c_i = 0`.
    Nil is the zero vector from the start; in that code after the first update.
    Without softmax, in a linear start, :math:`p_i = u_k^\top m_i`.
  """

  def __init__(
    self,
    vocabulary_size: int,
    memory_size: int,
    embedding_size: int = 20,
    num_hops: int = 3,
    tying: str = 'adjacent',
    encoding: str = 'position',
    temporal: bool = True,
    num_relu: int = 0,
    init_stddev: float = 0.1,
    name: str = 'memn2n',
  ):
    """Constructs the model.

    Args:
      vocabulary_size: symbols, nil included, of the largest task.
      memory_size: statements, of the largest task.
      embedding_size: d.
      num_hops: K.
      tying: one of TYINGS.
      encoding: one of ENCODINGS.
      temporal: whether statements have time vectors.
      num_relu: units, the last of d, with a ReLU after each hop: 0 in the paper
        up to footnote 4, which has d.
      init_stddev: standard deviation of the normal initial values.
      name: name of the module.

    Raises:
      ValueError: an argument is out of range.
    """
    super().__init__(name=name)
    one_of('tying', tying, TYINGS)
    one_of('encoding', encoding, ENCODINGS)
    one_of('num_relu', num_relu, range(embedding_size + 1))
    self._vocabulary_size = positive_int('vocabulary_size', vocabulary_size, 2)
    self._memory_size = positive_int('memory_size', memory_size)
    self._embedding_size = positive_int('embedding_size', embedding_size)
    self._num_hops = positive_int('num_hops', num_hops)
    self._tying = tying
    self._encoding = encoding
    self._temporal = temporal
    self._num_relu = num_relu
    self._init = hk.initializers.RandomNormal(init_stddev)

  def __call__(
    self,
    story: Array,
    question: Array,
    time: Array | None = None,
    *,
    linear: bool | Array = False,
    sizes: Sizes | None = None,
  ) -> tuple[Array, Array]:
    """Computes the logits of the answer.

    Args:
      story: [B, M, J] ids of words; 0 is nil. With `sizes`, empty slots at the
        end may be left out.
      question: [B, J] ids of words.
      time: [B, M] time of each statement, 1 for the newest, at most M; 0 for an
        empty slot. None for `consecutive(story)`.
      linear: whether to leave out the softmax of the hops; [] bool.
      sizes: those of the task, where the arrays have padding beyond them; None
        for the shapes of the arrays.

    Returns:
      Logits [B, V + M] (V without time vectors or with untied W), -inf beyond
      the sizes, and attention [B, K, M].
    """
    slots = story.shape[1] if sizes is None else self._memory_size
    if sizes is None:
      longest = question.shape[1]
      sizes = Sizes(self._vocabulary_size, story.shape[1], longest)
    if time is None:
      time = consecutive(story)
    answer, question_table, memory_tables = self._tables()
    scale, time_scale = self._unit_weights(sizes)  # [d] each
    copies = len(memory_tables)
    # One lookup in all tables at once is faster than one in each.
    table = jnp.concatenate(memory_tables, axis=1)  # [V + M, copies * d]
    vectors = self._embed(table, story, jnp.tile(scale, copies), sizes)
    if self._temporal:
      # Row 0 is zero.
      row = jnp.where(time > 0, time - 1 + self._vocabulary_size, 0)
      vectors += table[row] * jnp.tile(time_scale, copies)[None, None]
    memories = jnp.split(vectors, copies, axis=-1)  # [B, M, d] each
    if self._tying == 'layerwise':
      hops = [memories] * self._num_hops
    else:
      hops = list(itertools.pairwise(memories))
    in_memory = jnp.arange(slots) < sizes.memory  # [M]
    u = self._embed(question_table, question, scale, sizes)  # [B, d]
    attention = []
    for m, c in hops:
      p = attend(u, m, linear, in_memory[None])
      attention.append(p)
      output = jnp.einsum('bm,bmd->bd', p[:, : c.shape[1]], c)
      u = self._combine(u, output)
    logits = u @ answer.T
    return self._mask_classes(logits, sizes), jnp.stack(attention, axis=1)

  @hk.transparent
  def _tables(self) -> tuple[Array, Array, list[Array]]:
    """Returns W, B and the tables of the memory, all with rows per symbol."""
    times = self._memory_size if self._temporal else 0
    rows = self._vocabulary_size + times

    def table(name, rows):
      values = hk.get_parameter(
        name, (rows, self._embedding_size), init=self._init
      )
      is_nil = jnp.arange(rows)[:, None] == 0  # [rows, 1]
      return jnp.where(is_nil, 0.0, values)

    if self._tying == 'layerwise':
      answer = table('answer', self._vocabulary_size)
      question = table('question', self._vocabulary_size)
      return answer, question, [table('input', rows), table('output', rows)]
    names = [f'embedding_{k}' for k in range(self._num_hops + 1)]
    tables = [table(name, rows) for name in names]
    return tables[-1], tables[0], tables

  @hk.transparent
  def _combine(self, u: Array, output: Array) -> Array:
    """Returns the state after a hop, [B, d]."""
    size = self._embedding_size
    if self._tying == 'layerwise':
      u = u @ hk.get_parameter('hop', (size, size), init=self._init).T
    return relu_on_last(u + output, self._num_relu)

  def _embed(
    self, table: Array, ids: Array, scale: Array, sizes: Sizes
  ) -> Array:
    """Embeds sentences [..., J] as weighted sums of rows [..., d]."""
    rows = table[: self._vocabulary_size]
    return embed_sentences(
      rows, ids, scale, self._encoding, columns=sizes.sentence + 1
    )

  def _unit_weights(self, sizes: Sizes) -> tuple[Array, Array]:
    """Returns s_k of the position weights and the weights of time, [d]."""
    columns = sizes.sentence + 1
    s = unit_scale(self._encoding, self._embedding_size, columns)
    if self._encoding == 'position':
      return s, 1 + s * (columns - 1) / 2
    return s, jnp.ones_like(s)

  def _mask_classes(self, logits: Array, sizes: Sizes) -> Array:
    """Sets the logits of symbols and times beyond the task's to -inf."""
    index = jnp.arange(logits.shape[-1])[None]  # [1, V + M]
    time = index - self._vocabulary_size
    valid = jnp.where(time < 0, index < sizes.vocabulary, time < sizes.memory)
    return jnp.where(valid, logits, -jnp.inf)


def consecutive(story: Array) -> Array:
  """Returns the times [B, M] of the statements [B, M, J]: 1, 2, ..."""
  is_statement = (story > 0).any(-1)  # [B, M]
  return jnp.where(is_statement, jnp.arange(1, story.shape[1] + 1)[None], 0)


def attend(
  u: Array,
  m: Array,
  linear: bool | Array = False,
  in_memory: bool | Array = True,
) -> Array:
  """Returns the attention [B, M] of queries [B, d] to slots [B, M, d].

  Args:
    u: the queries.
    m: the memory.
    linear: whether the attention is the score itself, without softmax.
    in_memory: [1, M] whether a slot exists; others get no attention. More than
      the slots of `m` if empty ones at its end were left out.
  """
  scores = jnp.einsum('bd,bmd->bm', u, m)
  slots = jnp.shape(in_memory)[1] if jnp.ndim(in_memory) else m.shape[1]
  scores = jnp.pad(scores, [(0, 0), (0, slots - scores.shape[1])])
  p = jax.nn.softmax(jnp.where(in_memory, scores, -jnp.inf))
  return jnp.where(linear, jnp.where(in_memory, scores, 0.0), p)


def relu_on_last(u: Array, num_relu: int) -> Array:
  """Returns [B, d] with a ReLU on the last `num_relu` units."""
  size = u.shape[-1]
  is_linear = jnp.arange(size)[None] < size - num_relu  # [1, d]
  return jnp.where(is_linear, u, jax.nn.relu(u))
