"""Deep repeated ConvLSTM."""

import dataclasses

import haiku as hk
import jax.numpy as jnp

from rmc_jax.checks import positive_int
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.layers import Conv2D
from rmc_jax.cores.layers import Linear
from rmc_jax.cores.lstm import lstm_cell
from rmc_jax.cores.memory_matrix import cast_like
from rmc_jax.cores.memory_matrix import to_float32
from rmc_jax.cores.spatial_core import flatten_image
from rmc_jax.cores.spatial_core import SpatialCore
from rmc_jax.types import Array


@dataclasses.dataclass
class DRCConfig(CoreConfig):
  """The arguments of `DRC`."""

  name: str = 'drc'
  rows: int = 5
  columns: int = 5
  output_channels: int = 32
  kernel_size: int = 3
  num_layers: int = 3
  num_repeats: int = 3


class DRC(SpatialCore):
  r"""Deep repeated ConvLSTM, DRC(D, N): D layers, applied N times each step.

  In each of the N repeats, layer d = 1 .. D has the gates

  .. math::

     i, g, f, o = \mathrm{Conv}_{x}^d(x_t)
       + \mathrm{Conv}^d([h^{d-1}; p^d; h^d; \mathrm{edge}]) \qquad [R, W, 4 C]

  and then the cell of `ConvLSTM`. :math:`h^0` is the hidden state of the last
  layer in the repeat before; :math:`p^d` the mean and the maximum of
  :math:`h^d` over all cells, projected to C channels and broadcast to every
  cell; "edge" a channel that is 1 in the border cells and 0 elsewhere. The
  output is :math:`[h^D; x_t]`, flattened.

  Source: Guez et al. 2019, "An investigation of model-free planning", sections
  2.1 and 2.2, and convlstm.py of AlignmentResearch/train-learned-planner.
  Departures from convlstm.py: it adds :math:`x_t` to the output, which is
  appended here, and its forget bias is 0, here 1 as in the other cores. Its
  configuration for BoxWorld also has a tanh output gate, one pooling weight for
  each channel, and the edge channel outside the image.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    rows: int,
    columns: int,
    output_channels: int = 32,
    kernel_size: int = 3,
    num_layers: int = 3,
    num_repeats: int = 3,
    name: str = 'drc',
  ):
    """Constructs the core.

    Args:
      rows: R, of inputs and states.
      columns: W.
      output_channels: C.
      kernel_size: of the convolutions.
      num_layers: D.
      num_repeats: N.
      name: name of the module.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is below 1.
    """
    super().__init__(rows, columns, output_channels, name)
    kernel_size = positive_int('kernel_size', kernel_size)
    num_layers = positive_int('num_layers', num_layers)
    self._num_repeats = positive_int('num_repeats', num_repeats)
    gates, layers = 4 * self._channels, range(num_layers)
    options = {'policy': self._policy}
    self._inputs = [
      Conv2D(gates, kernel_size, **options, name=f'input_{d}') for d in layers
    ]
    self._recurrents = [
      Conv2D(
        gates, kernel_size, with_bias=False, **options, name=f'recurrent_{d}'
      )
      for d in layers
    ]
    self._pools = [
      Linear(self._channels, with_bias=False, **options, name=f'pool_{d}')
      for d in layers
    ]

  @hk.transparent
  def initial_state(self, batch_size: int | None) -> tuple[hk.LSTMState, ...]:
    """Returns zeros: hidden and cell of each layer, [B, R, W, C]."""
    return self.zero_states(len(self._inputs), batch_size)

  @hk.transparent
  def project(self, inputs: Array) -> tuple[Array, ...]:
    """See base class. Returns the inputs and the gates of each layer."""
    image = self.to_image(inputs)
    return image, *(layer(image) for layer in self._inputs)

  @hk.transparent
  def step(
    self, projected: tuple[Array, ...], state: tuple[hk.LSTMState, ...]
  ) -> tuple[Array, tuple[hk.LSTMState, ...]]:
    """See base class. The output is [..., R * W * (C + input channels)]."""
    image, *gates = projected
    layers = list(to_float32(state))
    for _ in range(self._num_repeats):
      below = layers[-1].hidden
      for d, layer in enumerate(layers):
        layers[d] = self._cell(d, gates[d], below, layer)
        below = layers[d].hidden
    output = jnp.concatenate([layers[-1].hidden, to_float32(image)], -1)
    return self.cast_output(flatten_image(output)), cast_like(
      tuple(layers), state
    )

  @hk.transparent
  def _cell(
    self, d: int, gates: Array, below: Array, layer: hk.LSTMState
  ) -> hk.LSTMState:
    hidden = layer.hidden  # [..., R, W, C]
    means, maxima = hidden.mean((-3, -2)), hidden.max((-3, -2))
    pooled = self._pools[d](jnp.concatenate([means, maxima], -1))  # [..., C]
    pooled = jnp.broadcast_to(pooled[..., None, None, :], hidden.shape)
    edge = jnp.ones((self._rows, self._columns, 1))
    edge = edge.at[1:-1, 1:-1].set(0.0)
    edge = jnp.broadcast_to(edge, (*hidden.shape[:-1], 1))
    rows = jnp.concatenate([below, pooled, hidden, edge], -1)
    return lstm_cell(gates + self._recurrents[d](rows), layer.cell)
