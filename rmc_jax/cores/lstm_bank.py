"""A bank of parallel LSTMs whose states are summed."""

import dataclasses
import functools
import math

import haiku as hk
import jax.numpy as jnp
import jmp

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.layers import Linear
from rmc_jax.cores.lstm import lstm_cell
from rmc_jax.cores.memory_matrix import add_batch_axis
from rmc_jax.cores.memory_matrix import cast_like
from rmc_jax.cores.memory_matrix import to_float32
from rmc_jax.cores.projected_core import ProjectedCore
from rmc_jax.types import Array

SUMMED = ('hidden', 'cell')


@dataclasses.dataclass
class LSTMBankConfig(CoreConfig):
  """The arguments of `LSTMBank`."""

  name: str = 'lstm_bank'
  total_size: int = 2048
  num_cells: int = 4
  share_weights: bool = False
  summed: str = 'hidden'


class LSTMBank(ProjectedCore):
  r"""N parallel LSTMs of width D on the same input; the output is their sum.

  One step of cell j:

  .. math::

     \begin{array}{ll}
     i, g, f, o = W_j x + U_j h_j + b_j & [4 D] \\
     c_j' = \sigma(f + 1) \circ c_j + \sigma(i) \circ \tanh(g) & [D] \\
     h_j' = \sigma(o) \circ \tanh(c_j') & [D]
     \end{array}

  The output is :math:`\sum_j h_j'`, the state an `hk.LSTMState` of all
  :math:`h_j` and :math:`c_j`, [..., N, D] each. Gate order, forget bias and
  initial values of each cell are those of `hk.LSTM`.

  With `share_weights` all cells share W, U and b, and each has a trained key
  :math:`k_j` [D]: :math:`i, g, f, o = W x + U h_j + V k_j + b`. Without keys
  the cells would start equal and remain N copies of one LSTM.

  Source: Santoro et al. 2018, appendix A.2: the "EntNet" of the program
  evaluation tasks, "a bank of LSTMs resembling Recurrent Entity Networks", with
  a total size of 1024 or 2048 "divided among memories and the states of the
  cells are summed to produce an output". `EntityNetwork` is the cell of the
  paper it resembles.

  Notes:
    Where the paper is silent:

    - D is `total_size // num_cells`: 6 cells of 1024 units have 170 each, 1020
      in all.
    - Cells have their own weights by default, as "a bank of LSTMs" suggests;
      the slots of an entity network share theirs.
    - The hidden state, the output of an LSTM, is summed by default.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    total_size: int,
    num_cells: int,
    share_weights: bool = False,
    summed: str = 'hidden',
    name: str = 'lstm_bank',
  ):
    """Constructs the core.

    Args:
      total_size: the width of all cells together.
      num_cells: N. Each cell, and the output, has width D = total_size // N.
      share_weights: whether cells share one set of weights and have a key each.
      summed: the state that is summed over the cells, 'hidden' or 'cell'.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is below 1, there are more cells than units, or
        `summed` is unknown.
    """
    super().__init__(name=name)
    total_size = positive_int('total_size', total_size)
    self._num_cells = positive_int('num_cells', num_cells)
    if total_size < num_cells:
      raise ValueError(
        f'total_size must be >= num_cells, {num_cells}. Got: {total_size}.'
      )
    self._summed = one_of('summed', summed, SUMMED)
    self._cell_size = total_size // num_cells  # D
    self._share_weights = share_weights

    gates = 4 * self._cell_size
    if share_weights:
      self._input = Linear(gates, policy=self._policy, name='input')
      self._recurrent = Linear(gates, False, self._policy, 'recurrent')
      # Keys are inputs, so they start at the scale of inputs, about 1.
      self._keys = hk.Embed(num_cells, self._cell_size, name='keys')
      self._key_gates = Linear(gates, False, self._policy, 'key_gates')
    else:
      self._input = Linear(num_cells * gates, policy=self._policy, name='input')
      self._recurrent = _CellLinear(num_cells, gates, self._policy, 'recurrent')

  @hk.transparent
  def initial_state(self, batch_size: int | None) -> hk.LSTMState:
    """Returns zeros: hidden and cell, [B, N, D], or [N, D] for None."""
    shape = (self._num_cells, self._cell_size)
    state = hk.LSTMState(hidden=jnp.zeros(shape), cell=jnp.zeros(shape))
    return add_batch_axis(state, batch_size)

  @hk.transparent
  def project(self, inputs: Array) -> Array:
    """See base class. Returns the gates without U h, [..., N, 4 * D]."""
    size, input_size = self._cell_size, inputs.shape[-1]
    shape = (*inputs.shape[:-1], self._num_cells, 4 * size)
    # The weights of a cell are parts of one and share its initial scale.
    fan_in = input_size + size * (2 if self._share_weights else 1)
    self._input.make_weight(input_size, inputs.dtype, fan_in)
    self._recurrent.make_weight(size, to_float32(inputs).dtype, fan_in)
    gates = self._input(inputs)  # [..., N * 4 * D], or shared [..., 4 * D]
    if not self._share_weights:
      return gates.reshape(shape)
    self._key_gates.make_weight(size, to_float32(inputs).dtype, fan_in)
    gates = gates[..., None, :]  # [..., 1, 4 * D]
    key_gates = self._key_gates(self._keys.embeddings)  # [N, 4 * D]
    return jnp.broadcast_to(gates, shape) + jnp.broadcast_to(key_gates, shape)

  @hk.transparent
  def step(
    self, projected: Array, state: hk.LSTMState
  ) -> tuple[Array, hk.LSTMState]:
    """See base class. The output is [..., D]."""
    hidden, cell = to_float32(state)
    gates = projected + self._recurrent(hidden)  # [..., N, 4 * D]
    next_state = cast_like(lstm_cell(gates, cell), state)
    summed = getattr(next_state, self._summed)  # [..., N, D]
    return self.cast_output(summed.sum(axis=-2)), next_state


class _CellLinear(Linear):
  """Computes `x_j W_j` for N rows with their own weights, `w` [N, X, Y]."""

  def __init__(
    self,
    num_cells: int,
    output_size: int,
    policy: jmp.Policy | None,
    name: str,
  ):
    super().__init__(output_size, False, policy, name)
    self._num_cells = num_cells

  def __call__(self, x: Array) -> Array:
    """Maps [..., N, X] to [..., N, Y], after `make_weight`."""
    width = self._num_cells * x.shape[-1]
    # Deferred gradients expect one row per example, so the N rows are joined.
    rows = x.reshape(math.prod(x.shape[:-2]), width)
    product = functools.partial(_cell_products, num_cells=self._num_cells)
    out = self._multiply(product, rows, self._weight(width, x.dtype))
    return out.reshape(*x.shape[:-1], self.output_size)

  def make_weight(
    self, input_size: int, input_dtype: jnp.dtype, fan_in: int
  ) -> None:
    """See base class; `input_size` is that of one cell."""
    super().make_weight(self._num_cells * input_size, input_dtype, fan_in)

  def _weight_shape(self, input_size: int) -> list[int]:
    return [self._num_cells, input_size // self._num_cells, self.output_size]


def _cell_products(
  x: Array, w: Array, num_cells: int, dtype: jnp.dtype
) -> Array:
  """Multiplies each cell's [R, X] by its [X, Y]; returns [R, N * Y]."""
  x = x.reshape(len(x), num_cells, len(w) // num_cells)
  # An einsum would put w first, which is slower and which XLA for CPUs does not
  # support in bfloat16.
  products = jnp.matmul(
    x.swapaxes(0, 1).astype(dtype),
    w.reshape(num_cells, -1, w.shape[-1]).astype(dtype),
    preferred_element_type=jnp.promote_types(dtype, jnp.float32),
  )  # [N, R, Y]
  return products.swapaxes(0, 1).reshape(len(x), num_cells * w.shape[-1])
