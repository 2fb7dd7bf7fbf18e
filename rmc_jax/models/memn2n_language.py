"""The language model of end-to-end memory networks: a memory of words."""

import haiku as hk
import jax.numpy as jnp

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.models.memn2n import attend
from rmc_jax.models.memn2n import relu_on_last
from rmc_jax.types import Array

_QUERY = 0.1  # All units of u_1, not learned.


class MemN2NLanguageModel(hk.Module):
  r"""Predicts a word by attending to the N words before it, in hops.

  With words :math:`w_1, \ldots, w_N`, the oldest first, and vectors
  :math:`T_A(i), T_C(i)` for their positions:

  .. math::

     \begin{array}{ll}
     m_i = A w_i + T_A(i) \\
     c_i = C w_i + T_C(i) \\
     p_i = \mathrm{softmax}_i(u_k^\top m_i) \\
     u_{k+1} = f(H u_k + \sum_i p_i c_i)
     \end{array}

  from :math:`u_1 = (0.1, \ldots, 0.1)`; f is the identity on the first units
  and ReLU on the others. All hops share one memory. The logits are
  :math:`W u_{K+1}`, without a bias.

  Source: Sukhbaatar et al. 2015, "End-to-end memory networks", section 5, and
  the authors' Torch code, MemN2N-lang-model. All parameters start from
  :math:`N(0, 0.05^2)`, the time vectors and H too.

  Notes:
    The paper numbers positions from the newest word. As in that code, N is the
    newest here; the parameters are the same in another order.
  """

  def __init__(
    self,
    vocabulary_size: int,
    memory_size: int = 100,
    embedding_size: int = 150,
    num_hops: int = 6,
    num_linear: int = 75,
    init_stddev: float = 0.05,
    name: str = 'memn2n_language_model',
  ):
    """Constructs the model.

    Args:
      vocabulary_size: V.
      memory_size: N, words in the memory.
      embedding_size: d.
      num_hops: K.
      num_linear: units, the first of d, without a ReLU after each hop.
      init_stddev: standard deviation of the normal initial values.
      name: name of the module.

    Raises:
      TypeError: a size is not an integer.
      ValueError: an argument is out of range.
    """
    super().__init__(name=name)
    self._vocabulary_size = positive_int('vocabulary_size', vocabulary_size)
    self._memory_size = positive_int('memory_size', memory_size)
    self._embedding_size = positive_int('embedding_size', embedding_size)
    self._num_hops = positive_int('num_hops', num_hops)
    self._num_linear = one_of(
      'num_linear', num_linear, range(embedding_size + 1)
    )
    self._init = hk.initializers.RandomNormal(init_stddev)

  def __call__(self, words: Array) -> tuple[Array, Array]:
    """Computes the logits of the next word.

    Args:
      words: [B, N] ids, the oldest word first.

    Returns:
      Logits [B, V] and attention [B, K, N].

    Raises:
      ValueError: `words` has another shape.
    """
    if words.ndim != 2 or words.shape[1] != self._memory_size:
      raise ValueError(
        f'words must be [B, {self._memory_size}], the words in the memory. '
        f'Got shape: {words.shape}.'
      )
    m = self._memory('input', words)  # [B, N, d]
    c = self._memory('output', words)  # [B, N, d]
    hop = self._matrix('hop', self._embedding_size)  # H
    u = jnp.full((words.shape[0], self._embedding_size), _QUERY, m.dtype)
    attention = []
    for _ in range(self._num_hops):
      p = attend(u, m)  # [B, N]
      attention.append(p)
      u = u @ hop.T + jnp.einsum('bn,bnd->bd', p, c)
      u = relu_on_last(u, self._embedding_size - self._num_linear)
    logits = u @ self._matrix('next_word', self._vocabulary_size).T
    return logits, jnp.stack(attention, axis=1)

  @hk.transparent
  def _memory(self, name: str, words: Array) -> Array:
    """Embeds words and positions, [B, N, d]."""
    time = self._matrix(f'{name}_time', self._memory_size)
    return self._matrix(name, self._vocabulary_size)[words] + time[None]

  @hk.transparent
  def _matrix(self, name: str, rows: int) -> Array:
    shape = (rows, self._embedding_size)
    return hk.get_parameter(name, shape, init=self._init)
