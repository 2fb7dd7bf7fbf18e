"""A multi-layer LSTM with skip connections."""

import dataclasses

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.checks import positive_int
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.layers import Linear
from rmc_jax.cores.memory_matrix import add_batch_axis
from rmc_jax.cores.memory_matrix import cast_like
from rmc_jax.cores.memory_matrix import to_float32
from rmc_jax.cores.projected_core import ProjectedCore
from rmc_jax.types import Array

# One for each layer.
LSTMStates = tuple[hk.LSTMState, ...]


@dataclasses.dataclass
class LSTMConfig(CoreConfig):
  """The arguments of `LSTM`."""

  name: str = 'lstm'
  hidden_size: int = 2048
  num_layers: int = 1


class LSTM(ProjectedCore):
  r"""LSTM layers with skip connections from the input and to the output.

  One step of layer l on input x [X], with Y = `hidden_size` and an empty
  :math:`h_t^{-1}`:

  .. math::

     \begin{array}{ll}
     i, g, f, o = \mathrm{Linear}_l([x_t; h_t^{l-1}; h_{t-1}^l]) & [4 Y] \\
     c_t = \sigma(f + 1) \circ c_{t-1} + \sigma(i) \circ \tanh(g) & [Y] \\
     h_t = \sigma(o) \circ \tanh(c_t) & [Y]
     \end{array}

  The output is :math:`[h^0; h^1; \ldots]`, layers * Y. An optional feedback is
  concatenated after :math:`x_t`.

  Source: Santoro et al. 2018, appendix A.2, "skip connections and layer-wise
  outputs concatenated on the final layer". Numbers and state are those of
  `hk.deep_rnn_with_skip_connections` over `hk.LSTM`; gate order and forget bias
  are also those of `snt.LSTM`.

  Notes:
    Departure from Haiku: the first X rows of a layer's `w` are `input_l/w`,
    whose product needs no state and leaves the loop; the other rows are
    `recurrent_l/w`. Both start with the standard deviation of the whole `w`,
    but the same key gives other values.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    hidden_size: int,
    num_layers: int = 1,
    feedback_size: int = 0,
    name: str = 'lstm',
  ):
    """Constructs the core.

    Args:
      hidden_size: Y, the units in each layer.
      num_layers: the number of layers.
      feedback_size: width of a second input to all layers, which a core that
        contains this one passes to `step`; 0 for none.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is below 1, or `feedback_size` below 0.
    """
    super().__init__(name=name)
    self.hidden_size = positive_int('hidden_size', hidden_size)
    num_layers = positive_int('num_layers', num_layers)
    self._feedback_size = positive_int('feedback_size', feedback_size, least=0)
    gates = 4 * self.hidden_size
    self._inputs = [
      Linear(gates, policy=self._policy, name=f'input_{i}')
      for i in range(num_layers)
    ]
    self._recurrents = [
      Linear(gates, False, policy=self._policy, name=f'recurrent_{i}')
      for i in range(num_layers)
    ]

  @hk.transparent
  def initial_state(self, batch_size: int | None) -> LSTMStates:
    """Returns zeros: hidden and cell of each layer, [B, Y], or [Y] for None."""
    shape = (self.hidden_size,)
    layer = hk.LSTMState(hidden=jnp.zeros(shape), cell=jnp.zeros(shape))
    layer = add_batch_axis(layer, batch_size)
    return tuple(layer for _ in self._inputs)

  @hk.transparent
  def project(self, inputs: Array) -> tuple[Array, ...]:
    """See base class. Returns the gates' input part, [..., 4 * Y] per layer."""
    input_size = inputs.shape[-1]
    gates = []
    for i, (linear, recurrent) in enumerate(
      zip(self._inputs, self._recurrents, strict=True)
    ):
      rows = self._feedback_size + self.hidden_size * (2 if i else 1)
      # Both are parts of one weight and share its initial scale.
      fan_in = input_size + rows
      linear.make_weight(input_size, inputs.dtype, fan_in)
      recurrent.make_weight(rows, to_float32(inputs).dtype, fan_in)
      gates.append(linear(inputs))
    return tuple(gates)

  @hk.transparent
  def step(
    self,
    projected: tuple[Array, ...],
    state: LSTMStates,
    feedback: Array | None = None,
  ) -> tuple[Array, LSTMStates]:
    """See base class. The output is [..., layers * Y].

    Raises:
      ValueError: `feedback` is not [..., feedback_size], or None if that is 0.
    """
    width = 0 if feedback is None else feedback.shape[-1]
    if width != self._feedback_size:
      raise ValueError(
        f'{self.name}: feedback has width {width}, expected '
        f'{self._feedback_size}, the feedback_size.'
      )
    feedbacks = [] if feedback is None else [feedback]
    next_state: list[hk.LSTMState] = []
    for gates, recurrent, layer in zip(
      projected, self._recurrents, to_float32(state), strict=True
    ):
      below = [lower.hidden for lower in next_state[-1:]]
      rows = jnp.concatenate([*feedbacks, *below, layer.hidden], axis=-1)
      next_state.append(lstm_cell(gates + recurrent(rows), layer.cell))
    output = jnp.concatenate([layer.hidden for layer in next_state], axis=-1)
    return self.cast_output(output), cast_like(tuple(next_state), state)


def lstm_cell(gates: Array, cell: Array) -> hk.LSTMState:
  """Returns the next state from i, g, f, o, [..., 4 * Y], and c, [..., Y]."""
  i, g, f, o = jnp.split(gates, 4, axis=-1)
  cell = jax.nn.sigmoid(f + 1) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
  return hk.LSTMState(hidden=jax.nn.sigmoid(o) * jnp.tanh(cell), cell=cell)
