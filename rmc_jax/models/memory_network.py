"""Memory networks that choose single statements: hard attention in hops."""

from collections.abc import Callable
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.checks import positive_int
from rmc_jax.types import Array

# (hop, preference [B, M + 1, M + 1], which slots are possible [B, M + 1], slots
# chosen in the hops before, [B] each) -> [B]
Choose = Callable[[int, Array, Array, list[Array]], Array]


class Output(NamedTuple):
  """What a memory network computes for a batch of questions.

  Slot M stands for no further statement. `prefer` compares slots.

  Attributes:
    score: [B, H, M + 1] of the slots, without their order in time.
    newer: [B, H] preference of the newer of two statements.
    possible: [B, H, M + 1] whether a hop can choose a slot: not if it is empty,
      and none after no further statement was chosen.
    chosen: [B, H] the slot that each hop chose.
    logits: [B, V] scores of the answers.
  """

  score: Array
  newer: Array
  possible: Array
  chosen: Array
  logits: Array


class MemoryNetwork(hk.Module):
  r"""Answers questions from the statements that it chooses, one per hop.

  With features :math:`\Phi` of sentences, such as their n-grams, summed rows of
  tables Q, S and Y, and :math:`E(x) = \tanh(W \tanh(x))`, hop h prefers
  statement i to statement j by

  .. math::

     \begin{array}{ll}
     x_h = E(Q \Phi(q) + \sum_{g<h} (1 + r_g) \odot S \Phi(m_{o_g})) \\
     y_i = E'(Y \Phi(m_i)) \\
     s_h(i, j) = x_h^\top (y_i - y_j + t_a (a_i - a_j) + t_n n_{ij})
     \end{array}

  where :math:`a_i` is 1 if statement i is newer than the one chosen last, else
  0, and :math:`n_{ij}` is 1 if it is newer than statement j, else -1, so that
  :math:`s_h(i, j) = -s_h(j, i)`. The choice :math:`o_h` wins a tournament: the
  oldest statement first, each is compared with the best so far. The hops end
  with a special statement, a trained y without time. The logits of the answers
  are :math:`A\,E''(Q' \Phi(q) + \sum_h (1 + r'_h) \odot S' \Phi(m_{o_h}))`.

  There is no gradient through a choice, so training needs to know which
  statements to choose: see `choose_supporting` and `ranking_loss`.

  Source: Weston, Chopra and Bordes 2015, "Memory networks", with the adaptive
  memory, n-grams and nonlinearity of Weston et al. 2015, "Towards AI-complete
  question answering": AM+NG+NL.

  Notes:
    The trained vectors r are an addition. Without them, the sum over statements
      does not show which of two places came first.
    In the papers an answer may be a list of words, chosen one after another.
      Here each answer is a class, as in Sukhbaatar et al. 2015.
    In the papers three features of 0 or 1 describe the times of a pair: whether
      x is older than i, x older than j, and i older than j. With the same words
      in both statements, these give no preference to the newer one.
  """

  def __init__(
    self,
    num_features: int,
    num_answers: int,
    embedding_size: int = 50,
    num_hops: int = 9,
    adaptive: bool = True,
    init_stddev: float = 0.1,
    name: str = 'memory_network',
  ):
    """Constructs the model.

    Args:
      num_features: rows of Q, S and Y; row 0 is nil.
      num_answers: V.
      embedding_size: d.
      num_hops: H, at most as many statements are chosen.
      adaptive: whether the hops may end early.
      init_stddev: standard deviation of the normal initial values of all
        tables.
      name: name of the module.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is out of range.
    """
    super().__init__(name=name)
    self._num_features = positive_int('num_features', num_features, 2)
    self._num_answers = positive_int('num_answers', num_answers, 2)
    self._embedding_size = positive_int('embedding_size', embedding_size)
    self._num_hops = positive_int('num_hops', num_hops)
    self._adaptive = adaptive
    self._init = hk.initializers.RandomNormal(init_stddev)

  def __call__(
    self, story: Array, question: Array, choose: Choose | None = None
  ) -> Output:
    """Chooses statements and scores the answers.

    Args:
      story: [B, M, F] ids of the features of each statement, the newest first;
        0 is nil.
      question: [B, F] ids.
      choose: chooses the slot of each hop; None for `tournament`.
    """
    choose = choose or _choose_best
    size, d = story.shape[1], self._embedding_size
    # One lookup for all uses of a sentence.
    statements = self._embed('statement', story, 3 * d)  # [B, M, 3 * d]
    y, facts = jnp.split(statements, [d], axis=-1)
    roles = self._table('role', self._num_hops, 2 * d)
    end = jnp.broadcast_to(self._table('end', 1)[None], (len(story), 1, d))
    y = jnp.concatenate([self._nonlinear('candidate', y), end], axis=1)
    inputs = self._embed('question', question, 2 * d)  # [B, 2 * d]
    possible = jnp.pad(
      (story > 0).any(-1), ((0, 0), (0, 1)), constant_values=self._adaptive
    )  # [B, M + 1]
    last = jnp.zeros(len(story), int)  # No slot is newer than this one.
    hops = []
    chosen: list[Array] = []
    for hop in range(self._num_hops):
      x = self._nonlinear('input', inputs[:, :d])
      score, newer = self._score(x, y, last)
      slot = choose(hop, prefer(score, newer), possible, chosen)[:, None]
      is_possible = jnp.take_along_axis(possible, slot, axis=1)
      slot = jnp.where(is_possible, slot, size)  # [B, 1]
      hops.append((score, newer, possible))
      chosen.append(slot[:, 0])
      is_chosen = jnp.arange(size)[None] == slot  # [B, M]
      possible &= slot < size
      last = chosen[-1]
      fact = jnp.einsum('bm,bmd->bd', is_chosen.astype(y.dtype), facts)
      inputs += fact * (1 + roles[hop])[None]
    answers = self._table('answer', self._num_answers)  # A
    logits = self._nonlinear('output', inputs[:, d:]) @ answers.T
    score, newer, possible = (jnp.stack(x, 1) for x in zip(*hops, strict=True))
    return Output(score, newer, possible, jnp.stack(chosen, 1), logits)

  @hk.transparent
  def _score(self, x: Array, y: Array, last: Array) -> tuple[Array, Array]:
    """Returns the scores [B, M + 1] of slots, and of being newer [B].

    Args:
      x: [B, d].
      y: [B, M + 1, d].
      last: [B] the slot chosen last; smaller slots are newer.
    """
    newer, after = (x @ self._table('time', 2).T).T  # [B] each
    is_after = jnp.arange(y.shape[1])[None] < last[:, None]  # [B, M + 1]
    score = jnp.einsum('bd,bmd->bm', x, y) + after[:, None] * is_after
    return score, newer

  @hk.transparent
  def _embed(self, name: str, ids: Array, size: int) -> Array:
    """Returns the sums [..., d] of the rows of features [..., F]."""
    table = self._table(name, self._num_features, size)
    is_nil = jnp.arange(self._num_features)[:, None] == 0
    return jnp.where(is_nil, 0.0, table)[ids].sum(-2)

  @hk.transparent
  def _nonlinear(self, name: str, x: Array) -> Array:
    r"""Returns :math:`\tanh(W \tanh(x))`, [..., d]."""
    return jnp.tanh(jnp.tanh(x) @ self._table(name, self._embedding_size))

  @hk.transparent
  def _table(self, name: str, rows: int, size: int | None = None) -> Array:
    shape = rows, size or self._embedding_size
    return hk.get_parameter(name, shape, init=self._init)


def prefer(score: Array, newer: Array) -> Array:
  """Returns s_h(i, j), the preference of slot i to slot j.

  Args:
    score: [..., M + 1] of the slots, without their order in time.
    newer: [...] preference of the newer of two statements. No further statement
      is neither newer nor older.

  Returns:
    [..., M + 1, M + 1].
  """
  size = score.shape[-1] - 1
  slot = np.arange(size + 1)
  order = np.sign(slot[None] - slot[:, None])  # 1: i is newer.
  order[size] = order[:, size] = 0
  order = order.reshape((1,) * newer.ndim + order.shape)
  difference = score[..., :, None] - score[..., None, :]
  return difference + newer[..., None, None] * order


def tournament(preference: Array, possible: Array) -> Array:
  """Returns the slot [B] that beats the best of the slots before it.

  The oldest statement is first, no further statement last.

  Args:
    preference: [B, M + 1, M + 1] of slot i to slot j.
    possible: [B, M + 1] the slots that take part; M if there is none.
  """
  size = preference.shape[-1] - 1
  rows = jnp.arange(len(preference))

  def compare(best, slot):
    best_so_far, found = best
    beats = preference[rows, slot, best_so_far] > 0
    wins = possible[:, slot] & (beats | ~found)
    return (jnp.where(wins, slot, best_so_far), found | wins), ()

  order = jnp.append(jnp.arange(size)[::-1], size)
  start = jnp.full(len(preference), size), jnp.zeros(len(preference), bool)
  return jax.lax.scan(compare, start, order)[0][0]


def _choose_best(hop, preference, possible, chosen):
  del hop, chosen
  return tournament(preference, possible)


def choose_supporting(supporting: Array) -> Choose:
  """Chooses the statements that support the answer, for training.

  Args:
    supporting: [B, M] 1, 2, ... for these statements, in this order; 0 for the
      others.
  """

  def choose(hop, preference, possible, chosen):
    del preference, possible, chosen
    is_next = supporting == hop + 1  # [B, M]
    return jnp.where(is_next.any(-1), is_next.argmax(-1), is_next.shape[1])

  return choose


def ranking_loss(
  preference: Array, positive: Array, negative: Array, margin: float
) -> Array:
  r"""Returns the margin ranking loss of each row, [...].

  .. math::
     \frac{1}{|P|} \sum_{p \in P} \sum_{n \in N} \max(0, \gamma - s(p, n))

  Zero without a positive or a negative candidate. Source: Weston, Chopra and
  Bordes 2015, with all negative candidates instead of a sample.

  Args:
    preference: s, [..., C, C].
    positive: P, [..., C] bool, the candidates to prefer.
    negative: N, [..., C] bool, to the others; the rest does not count.
    margin: gamma.
  """
  losses = jax.nn.relu(margin - preference)  # [..., p, n]
  is_pair = positive[..., :, None] & negative[..., None, :]
  total = jnp.where(is_pair, losses, 0.0).sum((-1, -2))
  return total / jnp.maximum(positive.sum(-1), 1)
