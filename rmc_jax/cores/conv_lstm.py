"""A convolutional LSTM."""

import dataclasses

import haiku as hk

from rmc_jax.checks import positive_int
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.layers import Conv2D
from rmc_jax.cores.lstm import lstm_cell
from rmc_jax.cores.memory_matrix import cast_like
from rmc_jax.cores.memory_matrix import to_float32
from rmc_jax.cores.spatial_core import flatten_image
from rmc_jax.cores.spatial_core import SpatialCore
from rmc_jax.types import Array


@dataclasses.dataclass
class ConvLSTMConfig(CoreConfig):
  """The arguments of `ConvLSTM`."""

  name: str = 'conv_lstm'
  rows: int = 5
  columns: int = 5
  output_channels: int = 64
  kernel_size: int = 2


class ConvLSTM(SpatialCore):
  r"""A convolutional LSTM, the baseline of Santoro et al. 2018, appendix A.3.

  .. math::

     \begin{array}{ll}
     i, g, f, o = \mathrm{Conv}_x(x_t) + \mathrm{Conv}_h(h_{t-1})
       & [R, W, 4 C] \\
     c_t = \sigma(f + 1) \circ c_{t-1} + \sigma(i) \circ \tanh(g)
       & [R, W, C] \\
     h_t = \sigma(o) \circ \tanh(c_t) & [R, W, C]
     \end{array}

  with a bias in each of the two convolutions and SAME padding. The output is
  :math:`h_t`, flattened.

  Source: Shi et al. 2015, "Convolutional LSTM network", without peepholes.
  Equal to `snt.Conv2DLSTM` and `hk.Conv2DLSTM` in results, gate order, forget
  bias and initialization. Departures: parameter names; inputs may be flattened.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    rows: int,
    columns: int,
    output_channels: int = 64,
    kernel_size: int = 2,
    name: str = 'conv_lstm',
  ):
    """Constructs the core.

    Args:
      rows: R, of inputs and states.
      columns: W.
      output_channels: C.
      kernel_size: of both convolutions.
      name: name of the module.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is below 1.
    """
    super().__init__(rows, columns, output_channels, name)
    kernel_size = positive_int('kernel_size', kernel_size)
    self._input, self._hidden = (
      Conv2D(4 * self._channels, kernel_size, policy=self._policy, name=part)
      for part in ('input', 'hidden')
    )

  @hk.transparent
  def initial_state(self, batch_size: int | None) -> hk.LSTMState:
    """Returns zeros: hidden and cell, [B, R, W, C], without B for None."""
    (state,) = self.zero_states(1, batch_size)
    return state

  @hk.transparent
  def project(self, inputs: Array) -> Array:
    """See base class. Returns the gates' input part, [..., R, W, 4 * C]."""
    return self._input(self.to_image(inputs))

  @hk.transparent
  def step(
    self, projected: Array, state: hk.LSTMState
  ) -> tuple[Array, hk.LSTMState]:
    """See base class. The output is [..., R * W * C]."""
    hidden, cell = to_float32(state)
    next_state = lstm_cell(projected + self._hidden(hidden), cell)
    return (
      self.cast_output(flatten_image(next_state.hidden)),
      cast_like(next_state, state),
    )
