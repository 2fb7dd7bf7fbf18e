"""The Relational Memory Core of the paper's equations (1) to (9)."""

import dataclasses
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.layers import compute_dtype
from rmc_jax.cores.layers import LayerNorm
from rmc_jax.cores.layers import Linear
from rmc_jax.cores.layers import MLP
from rmc_jax.cores.memory_matrix import cast_like
from rmc_jax.cores.memory_matrix import flatten_rows
from rmc_jax.cores.memory_matrix import initial_memory
from rmc_jax.cores.memory_matrix import to_float32
from rmc_jax.cores.projected_core import AttendingCore
from rmc_jax.cores.projected_core import StepTrace
from rmc_jax.ops import dot_product_attention
from rmc_jax.ops import split_heads
from rmc_jax.types import Array

GATE_STYLES = ('unit', 'memory')


@dataclasses.dataclass
class PaperRelationalMemoryConfig(CoreConfig):
  """The arguments of `PaperRelationalMemory`."""

  name: str = 'paper_relational_memory'
  mem_slots: int = 8
  head_size: int = 32
  num_heads: int = 1
  forget_bias: float = 1.0
  gate_style: str = 'unit'
  attention_mlp_layers: int = 2
  key_size: int | None = None


class PaperMemoryState(NamedTuple):
  """The state s_i = (m_i, h_i) of equations (3) and (9), for every slot i.

  Attributes:
    memory: [..., N, D] the cell states m.
    hidden: [..., N, D] the gated cell states h.
  """

  memory: Array
  hidden: Array


class ProjectedInputs(NamedTuple):
  """The input part of a step of `PaperRelationalMemory`.

  Attributes:
    keys_values: [..., I, H * (K + V)] x W^k and x W^v.
    gates: [..., 1, 3 * G] W x + b for the forget, input and output gate.
  """

  keys_values: Array
  gates: Array


class PaperRelationalMemory(AttendingCore):
  r"""A 2-dimensional LSTM whose rows attend to each other and to the input.

  .. math::

     \begin{array}{lll}
     \tilde{M} = \mathrm{softmax}(M W^q ([M; x] W^k)^T / \sqrt{d_k})
       [M; x] W^v & \text{per head} & (1, 2) \\
     s_{i,t} = (h_{i,t-1}, m_{i,t-1}) & & (3) \\
     f_{i,t} = W^f x_t + U^f h_{i,t-1} + b^f & & (4) \\
     i_{i,t} = W^i x_t + U^i h_{i,t-1} + b^i & & (5) \\
     o_{i,t} = W^o x_t + U^o h_{i,t-1} + b^o & & (6) \\
     m_{i,t} = \sigma(f_{i,t} + \tilde{b}^f) \circ m_{i,t-1}
       + \sigma(i_{i,t}) \circ g_\psi(\tilde{m}_{i,t}) & & (7) \\
     h_{i,t} = \sigma(o_{i,t}) \circ \tanh(m_{i,t}) & & (8) \\
     s_{i,t+1} = (m_{i,t}, h_{i,t}) & & (9)
     \end{array}

  The output is :math:`h_t` flattened to N * D.

  Source: Santoro et al. 2018, "Relational recurrent neural networks",
  section 3. The authors used `RelationalMemory`, which has no output gate; no
  public code implements the equations.

  Notes:
    Where the paper is silent:

    - Rows of `[M; x]` have width D, so a Linear maps x to D first, as in the
      released module. W of equations (4) to (6) reads that same row.
    - g_psi, "a row/memory-wise MLP with layer normalisation", is that of the
      released module: LayerNorm(m + attended), then LayerNorm of the result
      plus its MLP.
    - h starts at zero, as in an LSTM; M starts as the identity, as in the
      released module ("randomly initialised" in section 3.3).
    - The rows of a matrix input, which the paper does not have, are keys and
      values of their own; the gates read them concatenated.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    mem_slots: int,
    head_size: int,
    num_heads: int = 1,
    forget_bias: float = 1.0,
    gate_style: str = 'unit',
    attention_mlp_layers: int = 2,
    key_size: int | None = None,
    name: str = 'paper_relational_memory',
  ):
    """Constructs the core.

    Args:
      mem_slots: N, the number of memory slots.
      head_size: V, the value size of one head.
      num_heads: H. The width of a slot is D = H * V.
      forget_bias: the constant b~^f of equation (7).
      gate_style: 'unit', or 'memory' for one gate per row (end of section 3.3).
      attention_mlp_layers: layers of the MLP in g_psi.
      key_size: K, the size of queries and keys of one head; None means V.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is below 1, or `gate_style` is unknown.
    """
    super().__init__(name=name)
    self._mem_slots = positive_int('mem_slots', mem_slots)
    self._num_heads = positive_int('num_heads', num_heads)
    self._value_size = positive_int('head_size', head_size)
    mlp_layers = positive_int('attention_mlp_layers', attention_mlp_layers)
    key_size = head_size if key_size is None else key_size
    self._key_size = positive_int('key_size', key_size)
    one_of('gate_style', gate_style, GATE_STYLES)
    self._forget_bias = forget_bias
    self._slot_width = head_size * num_heads  # D

    def linear(width, name, with_bias=True):
      return Linear(width, with_bias, self._policy, name)

    self._input = linear(self._slot_width, 'input')
    # Equation (1) has no biases in W^q, W^k and W^v.
    self._queries = linear(num_heads * self._key_size, 'queries', False)
    self._keys_values = linear(
      num_heads * (self._key_size + head_size), 'keys_values', False
    )
    self._attention_norm = LayerNorm(name='attention_norm')
    self._mlp = MLP(self._slot_width, mlp_layers, self._policy, name='mlp')
    self._mlp_norm = LayerNorm(name='mlp_norm')
    gate_width = self._slot_width if gate_style == 'unit' else 1  # G
    self._input_gates = linear(3 * gate_width, 'input_gates')
    # b of equations (4) to (6) is in `input_gates`.
    self._hidden_gates = linear(3 * gate_width, 'hidden_gates', False)

  @hk.transparent
  def initial_state(self, batch_size: int | None) -> PaperMemoryState:
    """Returns the identity and zeros, [B, N, D], or [N, D] for None."""
    memory = initial_memory(self._mem_slots, self._slot_width, batch_size)
    return PaperMemoryState(memory, jnp.zeros_like(memory))

  @hk.transparent
  def project(
    self, inputs: Array, treat_input_as_matrix: bool = False
  ) -> ProjectedInputs:
    """See base class. Inputs [..., features] or [..., I, features]."""
    rows = self._input(inputs)  # [..., D] or [..., I, D]
    if not treat_input_as_matrix:
      rows = rows[..., None, :]  # [..., 1, D]
    gates = self._input_gates(flatten_rows(rows))[..., None, :]
    return ProjectedInputs(self._keys_values(rows), gates)

  @hk.transparent
  def trace_step(
    self, projected: ProjectedInputs, state: PaperMemoryState
  ) -> tuple[tuple[Array, StepTrace], PaperMemoryState]:
    """See base class."""
    memory, hidden = to_float32(state)
    attended, weights = self._attend(memory, projected.keys_values)  # eq. 2
    rows = self._attention_norm(memory + attended)
    modification = self._mlp_norm(rows + self._mlp(rows))  # g_psi, [..., N, D]

    gates = self._hidden_gates(hidden)  # [..., N, 3 * G]
    gates += jnp.broadcast_to(projected.gates, gates.shape)
    forget_gate, input_gate, output_gate = jnp.split(gates, 3, axis=-1)
    forget_gate = jax.nn.sigmoid(forget_gate + self._forget_bias)
    input_gate = jax.nn.sigmoid(input_gate)
    output_gate = jax.nn.sigmoid(output_gate)

    next_memory = forget_gate * memory + input_gate * modification  # eq. 7
    next_hidden = output_gate * jnp.tanh(next_memory)  # eq. 8
    next_state = cast_like(PaperMemoryState(next_memory, next_hidden), state)
    trace = StepTrace(
      weights[..., None, :, :, :],
      {'input': input_gate, 'forget': forget_gate, 'output': output_gate},
    )
    output = self.cast_output(flatten_rows(next_state.hidden))
    return (output, trace), next_state

  @hk.transparent
  def _attend(self, memory: Array, input_keys_values: Array):
    """Computes equation (2), with queries from the memory only."""
    (query,) = split_heads(
      self._queries(memory), self._num_heads, [self._key_size]
    )
    # Of the memory and of the inputs, [..., N or I, H, K or V].
    sizes = [self._key_size, self._value_size]
    groups = self._keys_values(memory), input_keys_values
    keys, values = zip(
      *(split_heads(rows, self._num_heads, sizes) for rows in groups),
      strict=True,
    )
    return dot_product_attention(
      query * self._key_size**-0.5,
      keys,
      values,
      compute_dtype=compute_dtype(self._policy),
    )  # [..., N, D], [..., H, N, N + I]
