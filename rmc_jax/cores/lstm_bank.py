"""A bank of parallel LSTMs whose states are summed."""

import dataclasses
import functools
import math

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np

from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.deferred_gradients import make_probe
from rmc_jax.cores.deferred_gradients import Product
from rmc_jax.cores.deferred_gradients import weight_product
from rmc_jax.cores.deferred_gradients import WeightGradientProbe
from rmc_jax.cores.layers import active_policy
from rmc_jax.cores.layers import compute_dtype
from rmc_jax.cores.layers import Linear
from rmc_jax.cores.memory_matrix import memory_batch_shape
from rmc_jax.cores.memory_matrix import positive_int
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
        f'total_size must be >= num_cells, {num_cells}. Got: {total_size}.'
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
    if batch_size is not None:
      shape = (batch_size, *shape)
    return hk.LSTMState(hidden=jnp.zeros(shape), cell=jnp.zeros(shape))

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
        f'{self.name}: hidden and cell have batch axes {hidden} and {cell}, '
        'expected equal ones; initial_state() makes a valid state.'
      )
    return hidden


class _CellLinear(hk.Module):
  """Computes `x_j W_j` for N rows with their own weights, in one product.

  The parameter `w` is [N, X, Y]. Initial values and precision are those of
  `Linear`.
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
    """Creates the weight before its first use; see `Linear`."""
    self._weight(input_size, input_dtype, fan_in)

  def __call__(self, x: Array) -> Array:
    """Maps [..., N, X] to [..., N, Y], after `make_weight`."""
    w = self._weight(x.shape[-1], x.dtype)
    compute = compute_dtype(self._policy) or jnp.promote_types(x.dtype, w.dtype)
    # `weight_product` expects one row per example, so the N rows are joined.
    out = weight_product(
      functools.partial(
        _cell_products, num_cells=self._num_cells, dtype=compute
      ),
      x.reshape(math.prod(x.shape[:-2]), self._num_cells * x.shape[-1]),
      w,
      self._make_probe,
    )  # [rows, N * Y]
    return out.reshape(*x.shape[:-1], self._output_size)

  def _weight(
    self, input_size: int, input_dtype: jnp.dtype, fan_in: int | None = None
  ) -> Array:
    """Returns the weights of all cells, stacked to [N * X, Y]."""
    policy = active_policy(self._policy)
    dtype = policy.param_dtype if policy else input_dtype
    w_init = hk.initializers.TruncatedNormal(
      1.0 / np.sqrt(fan_in or input_size)
    )
    shape = [self._num_cells, input_size, self._output_size]
    w = hk.get_parameter('w', shape, dtype, w_init)
    return w.reshape(self._num_cells * input_size, self._output_size)

  def _make_probe(
    self, product: Product, inputs: jax.ShapeDtypeStruct
  ) -> WeightGradientProbe:
    """See `Linear`."""
    input_size = inputs.shape[-1] // self._num_cells
    return make_probe(product, inputs, self._weight(input_size, inputs.dtype))


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
