"""A bank of LSTMs side by side, whose states are summed."""

import dataclasses
import functools
import math

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np

from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.deferred_gradients import open_tap
from rmc_jax.cores.deferred_gradients import Product
from rmc_jax.cores.deferred_gradients import Tap
from rmc_jax.cores.deferred_gradients import weight_product
from rmc_jax.cores.layers import active_policy
from rmc_jax.cores.layers import compute_dtype
from rmc_jax.cores.layers import Linear
from rmc_jax.cores.memory_matrix import memory_batch_shape
from rmc_jax.cores.memory_matrix import positive_int
from rmc_jax.cores.memory_matrix import wide
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
  r"""N LSTMs of width D that read the same input; the output is their sum.

  For each cell j of one step:

  .. math::

     \begin{array}{ll}
     i, g, f, o = W_j x + U_j h_j + b_j & [4 D] \\
     c_j' = \sigma(f + 1) \circ c_j + \sigma(i) \circ \tanh(g) & [D] \\
     h_j' = \sigma(o) \circ \tanh(c_j') & [D]
     \end{array}

  The output is :math:`\sum_j h_j'`, the state an `hk.LSTMState` of all
  :math:`h_j` and :math:`c_j`, [..., N, D] each. Each cell is an `hk.LSTM`:
  order of gates, forget bias and initial values are its own.

  With `share_weights` all cells have one W, U and b, and a trained key
  :math:`k_j` [D] each, a second input: :math:`i, g, f, o = W x + U h_j + V k_j
  + b`. Without keys they would start equal, read the same input with the same
  weights, and so be N copies of one LSTM for good.

  Source: Santoro et al. 2018, appendix A.2: the "EntNet" of the program
  evaluation tasks, "a bank of LSTMs resembling Recurrent Entity Networks", with
  a total size of 1024 or 2048 "divided among memories and the states of the
  cells are summed to produce an output". `EntityNetwork` is the cell of the
  paper it resembles.

  Notes:
    Where the paper is silent:

    - D is `total_size // num_cells`, and what is left over is dropped: 1024 in
      6 cells gives 170 each, 1020 in all.
    - Whether cells share weights, as the slots of an entity network do. Here
      by default each has its own, as "a bank of LSTMs" reads.
    - Which state is summed. Here by default the hidden one, which is what an
      LSTM gives out.
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
      total_size: width of all cells together.
      num_cells: N. A cell, and the output, is D = total_size // N wide.
      share_weights: one set of weights, and a key for each cell.
      summed: what is summed over the cells as the output, 'hidden' or 'cell'.
      name: name of the module.

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
        f'total_size must be at least num_cells, {num_cells}, so that each '
        f'cell has a unit. Got: {total_size}.'
      )
    if summed not in SUMMED:
      raise ValueError(f'summed must be one of {SUMMED}. Got: {summed!r}.')
    self._summed = summed
    self._cell_size = total_size // num_cells  # D
    self._share_weights = share_weights

    gates = 4 * self._cell_size
    if share_weights:
      self._input = Linear(gates, policy=self._policy, name='input')
      self._recurrent = Linear(gates, False, self._policy, 'recurrent')
      # Inputs that are learnt, so of the scale of inputs: order 1.
      self._keys = hk.Embed(num_cells, self._cell_size, name='keys')
      self._key_gates = Linear(gates, False, self._policy, 'key_gates')
    else:
      self._input = Linear(num_cells * gates, policy=self._policy, name='input')
      self._recurrent = _CellLinear(num_cells, gates, self._policy, 'recurrent')

  @hk.transparent
  def initial_state(self, batch_size: int | None) -> hk.LSTMState:
    """Zeros: hidden and cell [B, N, D], or for None [N, D]."""
    shape = (self._num_cells, self._cell_size)
    if batch_size is not None:
      shape = (batch_size, *shape)
    return hk.LSTMState(hidden=jnp.zeros(shape), cell=jnp.zeros(shape))

  @hk.transparent
  def project(self, inputs: Array) -> Array:
    """See base class. All that enters the gates but h: [..., N, 4 * D]."""
    size, input_size = self._cell_size, inputs.shape[-1]
    shape = (*inputs.shape[:-1], self._num_cells, 4 * size)
    # All weights of a cell are parts of one, and start as that would.
    fan_in = input_size + size * (2 if self._share_weights else 1)
    self._input.make_weight(input_size, inputs.dtype, fan_in)
    self._recurrent.make_weight(size, wide(inputs).dtype, fan_in)
    gates = self._input(inputs)  # [..., N * 4 * D], or shared [..., 4 * D]
    if not self._share_weights:
      return gates.reshape(shape)
    self._key_gates.make_weight(size, wide(inputs).dtype, fan_in)
    gates = gates[..., None, :]  # [..., 1, 4 * D]
    key_gates = self._key_gates(self._keys.embeddings)  # [N, 4 * D]
    return jnp.broadcast_to(gates, shape) + jnp.broadcast_to(key_gates, shape)

  @hk.transparent
  def step(
    self, projected: Array, state: hk.LSTMState
  ) -> tuple[Array, hk.LSTMState]:
    """See base class. The output is [..., D]."""
    hidden, cell = wide(state)
    gates = projected + self._recurrent(hidden)  # [..., N, 4 * D]
    i, g, f, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f + 1) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)  # [..., N, D]
    next_state = hk.LSTMState(
      hidden.astype(state.hidden.dtype), cell.astype(state.cell.dtype)
    )
    summed = getattr(next_state, self._summed)
    return self.cast_output(summed.sum(axis=-2)), next_state

  @hk.transparent
  def batch_shape(self, state: hk.LSTMState) -> tuple[int, ...]:
    """See base class."""
    hidden, cell = (
      memory_batch_shape(self.name, matrix, self._num_cells, self._cell_size)
      for matrix in state
    )
    if hidden != cell:
      raise ValueError(
        f'{self.name}: hidden and cell have batch axes {hidden} and {cell}; '
        'they must be the same.'
      )
    return hidden


class _CellLinear(hk.Module):
  """`x_j W_j` for N rows, each with a weight of its own, in one product.

  The parameter `w` is [N, X, Y]; initial values, policy and sums are those of a
  `Linear` without bias for each row.
  """

  def __init__(
    self,
    num_cells: int,
    output_size: int,
    policy: jmp.Policy | None,
    name: str,
  ):
    super().__init__(name=name)
    self._num_cells = num_cells
    self._output_size = output_size
    self._policy = policy

  def make_weight(
    self, input_size: int, input_dtype: jnp.dtype, fan_in: int
  ) -> None:
    """Makes the weight ahead of its use; see `Linear`."""
    self._weight(input_size, input_dtype, fan_in)

  def __call__(self, x: Array) -> Array:
    """[..., N, X] to [..., N, Y], after `make_weight`."""
    w = self._weight(x.shape[-1], x.dtype)
    compute = compute_dtype(self._policy) or jnp.promote_types(x.dtype, w.dtype)
    # The N rows of an example are one row to `weight_product`.
    out = weight_product(
      functools.partial(
        _cell_products, num_cells=self._num_cells, dtype=compute
      ),
      x.reshape(math.prod(x.shape[:-2]), self._num_cells * x.shape[-1]),
      w,
      self._open_tap,
    )  # [rows, N * Y]
    return out.reshape(*x.shape[:-1], self._output_size)

  def _weight(
    self, input_size: int, input_dtype: jnp.dtype, fan_in: int | None = None
  ) -> Array:
    """The weights of all cells one below the other, [N * X, Y]."""
    policy = active_policy(self._policy)
    dtype = policy.param_dtype if policy else input_dtype
    w_init = hk.initializers.TruncatedNormal(
      1.0 / np.sqrt(fan_in or input_size)
    )
    shape = [self._num_cells, input_size, self._output_size]
    w = hk.get_parameter('w', shape, dtype, w_init)
    return w.reshape(self._num_cells * input_size, self._output_size)

  def _open_tap(self, product: Product, rows: jax.ShapeDtypeStruct) -> Tap:
    """As in `Linear`."""
    input_size = rows.shape[-1] // self._num_cells
    return open_tap(product, rows, self._weight(input_size, rows.dtype))


def _cell_products(
  x: Array, w: Array, num_cells: int, dtype: jnp.dtype
) -> Array:
  """[R, N * X] and [N * X, Y] to [R, N * Y], each cell its part of both."""
  x = x.reshape(len(x), num_cells, len(w) // num_cells)
  # Not an einsum, which would put w first: slower, and in bfloat16 more than
  # XLA for CPUs can do.
  products = jnp.matmul(
    x.swapaxes(0, 1).astype(dtype),
    w.reshape(num_cells, -1, w.shape[-1]).astype(dtype),
    preferred_element_type=jnp.promote_types(dtype, jnp.float32),
  )  # [N, R, Y]
  return products.swapaxes(0, 1).reshape(len(x), num_cells * w.shape[-1])
