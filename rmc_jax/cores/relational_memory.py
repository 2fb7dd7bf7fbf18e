"""The Relational Memory Core, equal to the authors' Sonnet module."""

from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import jmp

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.layers import compute_dtype
from rmc_jax.cores.layers import LayerNorm
from rmc_jax.cores.layers import Linear
from rmc_jax.cores.layers import MLP
from rmc_jax.cores.memory_matrix import flatten_rows
from rmc_jax.cores.memory_matrix import initial_memory
from rmc_jax.cores.memory_matrix import to_float32
from rmc_jax.cores.projected_core import AttendingCore
from rmc_jax.cores.projected_core import StepTrace
from rmc_jax.ops import dot_product_attention
from rmc_jax.ops import split_heads
from rmc_jax.types import Array

GATE_STYLES = ('unit', 'memory', None)
QUERY_SCALES = ('key', 'qkv')


@dataclasses.dataclass
class RelationalMemoryConfig(CoreConfig):
  """The arguments of `RelationalMemory`."""

  name: str = 'relational_memory'
  mem_slots: int = 8
  head_size: int = 32
  num_heads: int = 1
  num_blocks: int = 1
  forget_bias: float = 1.0
  input_bias: float = 0.0
  gate_style: str | None = 'unit'
  attention_mlp_layers: int = 2
  key_size: int | None = None
  query_scale: str = 'key'


class ProjectedInputs(NamedTuple):
  """The input part of a step of `RelationalMemory`.

  Attributes:
    rows: [..., I, D] the projected input rows.
    qkv: [..., I, F] their queries, keys and values in the first block.
    gates: [..., 1, 2 * G] the input part of both gates; None without gates.
  """

  rows: Array
  qkv: Array
  gates: Array | None


class RelationalMemory(AttendingCore):
  r"""A memory of N slots that attend to each other and to the input.

  One step on memory :math:`M` [N, D] and input :math:`x`:

  .. math::

     \begin{array}{ll}
     X = \mathrm{Linear}(x) & [I, D] \\
     R = [M; X] & [N + I, D] \\
     \text{for each block:} \\
     \quad Q, K, V = \mathrm{LayerNorm}(\mathrm{Linear}(R)) & \text{per head} \\
     \quad R = \mathrm{LayerNorm}(R + \mathrm{softmax}(Q K^T / \sqrt{d_k}) V) \\
     \quad R = \mathrm{LayerNorm}(R + \mathrm{MLP}(R)) \\
     i, f = \mathrm{Linear}(\tanh M) + \mathrm{Linear}(X) & [N, G] \\
     M' = \sigma(i + b_i) \circ \tanh(R_{1..N}) + \sigma(f + b_f) \circ M
     \end{array}

  The output is :math:`M'` flattened to N * D, the state is :math:`M'`.

  Source: Santoro et al. 2018, "Relational recurrent neural networks", as
  published by the authors: `RelationalMemory` of dm-sonnet 1.36,
  `sonnet/python/modules/relational_memory.py`. `python -m rmc_jax.parity`
  compares the two.

  Notes:
    Details of the original that are easy to miss: the layer norm after the
    projection spans the queries, keys and values of all heads of a row; each
    block has its own projection and layer norms, but all blocks share one MLP;
    no projection follows the attention; the gates read tanh of the old memory
    and the projected input; gate biases are constants; the input rows are
    dropped after the last block.
    Departures from the original: none in the numbers. Sizes below 1 are refused
    (`key_size=0` means `head_size` there); the initial state has no `trainable`
    argument, which the original ignores; the batch axis is optional.
    `PaperRelationalMemory` implements the paper's equations instead.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    mem_slots: int,
    head_size: int,
    num_heads: int = 1,
    num_blocks: int = 1,
    forget_bias: float = 1.0,
    input_bias: float = 0.0,
    gate_style: str | None = 'unit',
    attention_mlp_layers: int = 2,
    key_size: int | None = None,
    query_scale: str = 'key',
    name: str = 'relational_memory',
  ):
    """Constructs the core.

    Args:
      mem_slots: N, the number of memory slots.
      head_size: V, the value size of one head.
      num_heads: H. The width of a slot is D = H * V.
      num_blocks: L, the number of attention blocks in one step.
      forget_bias: constant added to the forget gate before its sigmoid.
      input_bias: constant added to the input gate before its sigmoid.
      gate_style: 'unit', one gate per unit; 'memory', one gate per slot; None,
        no gates, and the candidate without tanh is the next memory.
      attention_mlp_layers: layers of the MLP after the attention.
      key_size: K, the size of queries and keys of one head; None means V.
      query_scale: 'key' scales queries by K^-1/2; 'qkv' by (2K + V)^-1/2, as
        dm-sonnet up to 1.26, which the paper's own runs used.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is below 1, or a style or scale is unknown.
    """
    super().__init__(name=name)
    self._mem_slots = positive_int('mem_slots', mem_slots)
    self._num_heads = positive_int('num_heads', num_heads)
    head_size = positive_int('head_size', head_size)
    num_blocks = positive_int('num_blocks', num_blocks)
    mlp_layers = positive_int('attention_mlp_layers', attention_mlp_layers)
    key_size = head_size if key_size is None else key_size
    key_size = positive_int('key_size', key_size)
    one_of('gate_style', gate_style, GATE_STYLES)
    one_of('query_scale', query_scale, QUERY_SCALES)
    self._forget_bias = forget_bias
    self._input_bias = input_bias
    self._slot_width = head_size * num_heads  # D

    self._input = Linear(self._slot_width, policy=self._policy, name='input')
    heads = num_heads, key_size, head_size, query_scale
    self._blocks = [
      _AttentionBlock(*heads, self._policy, name=f'attention_{i}')
      for i in range(num_blocks)
    ]
    self._mlp = MLP(self._slot_width, mlp_layers, self._policy, name='mlp')
    self._gated = gate_style is not None
    if self._gated:
      gate_width = self._slot_width if gate_style == 'unit' else 1  # G
      self._input_gates, self._memory_gates = (
        Linear(2 * gate_width, policy=self._policy, name=name)
        for name in ('input_gates', 'memory_gates')
      )

  @hk.transparent
  def initial_state(self, batch_size: int | None) -> Array:
    """Returns the identity, padded or cut to [B, N, D], or [N, D] for None."""
    return initial_memory(self._mem_slots, self._slot_width, batch_size)

  @hk.transparent
  def project(
    self, inputs: Array, treat_input_as_matrix: bool = False
  ) -> ProjectedInputs:
    """See base class. Inputs [..., features] or [..., I, features]."""
    rows = self._input(inputs)  # [..., D] or [..., I, D]
    if not treat_input_as_matrix:
      rows = rows[..., None, :]  # [..., 1, D]
    qkv = self._blocks[0].project(rows)  # [..., I, F]
    gates = None
    if self._gated:
      gates = self._input_gates(flatten_rows(rows))[..., None, :]
    return ProjectedInputs(rows, qkv, gates)

  @hk.transparent
  def trace_step(
    self, projected: ProjectedInputs, state: Array
  ) -> tuple[tuple[Array, StepTrace], Array]:
    """See base class."""
    memory, num_slots = to_float32(state), self._mem_slots
    rows = jnp.concatenate([memory, projected.rows], axis=-2)  # [..., N + I, D]
    attention = []
    for block in self._blocks:
      if block is self._blocks[0]:
        # Those of the inputs are precomputed; stacking both would copy them.
        qkv = [block.project(memory), projected.qkv]  # [..., N, F], [..., I, F]
      else:
        qkv = [block.project(rows)]  # [..., N + I, F]
      if block is self._blocks[-1]:
        # It drops the input rows, so only the slots have queries.
        rows = rows[..., :num_slots, :]
      rows, weights = block(rows, qkv, self._mlp)  # [..., N or N + I, D]
      attention.append(weights[..., :num_slots, :])  # [..., H, N, N + I]

    next_memory, gates = self._gate(memory, rows, projected.gates)
    next_memory = next_memory.astype(state.dtype)  # [..., N, D]
    trace = StepTrace(jnp.stack(attention, axis=-4), gates)
    output = self.cast_output(flatten_rows(next_memory))
    return (output, trace), next_memory

  @hk.transparent
  def _gate(
    self, memory: Array, candidate: Array, input_gates: Array | None
  ) -> tuple[Array, dict[str, Array]]:
    """Gates the candidate into the memory; both are [..., N, D]."""
    if input_gates is None:
      return candidate, {}
    both = self._memory_gates(jnp.tanh(memory))  # [..., N, 2 * G]
    both += jnp.broadcast_to(input_gates, both.shape)
    input_gate, forget_gate = jnp.split(both, 2, axis=-1)
    input_gate = jax.nn.sigmoid(input_gate + self._input_bias)
    forget_gate = jax.nn.sigmoid(forget_gate + self._forget_bias)
    next_memory = input_gate * jnp.tanh(candidate) + forget_gate * memory
    return next_memory, {'input': input_gate, 'forget': forget_gate}


class _AttentionBlock(hk.Module):
  """An attention block with its projection and three layer norms."""

  @hk.name_like('__call__')
  def __init__(
    self,
    num_heads: int,
    key_size: int,
    value_size: int,
    query_scale: str,
    policy: jmp.Policy | None,
    name: str,
  ):
    super().__init__(name=name)
    self._num_heads = num_heads
    self._sizes = (key_size, key_size, value_size)
    width = key_size if query_scale == 'key' else sum(self._sizes)
    self._query_scale = width**-0.5
    self._policy = policy
    self._qkv = Linear(num_heads * sum(self._sizes), policy=policy, name='qkv')
    self._qkv_norm = LayerNorm(name='qkv_norm')
    self._attention_norm = LayerNorm(name='attention_norm')
    self._mlp_norm = LayerNorm(name='mlp_norm')

  @hk.transparent
  def project(self, rows: Array) -> Array:
    """Maps rows [..., M, D] to their queries, keys and values [..., M, F]."""
    return self._qkv_norm(self._qkv(rows))

  def __call__(
    self, rows: Array, qkv: Sequence[Array], mlp: MLP
  ) -> tuple[Array, Array]:
    """Updates the first M' of M rows, given groups of their Q, K and V."""
    queries, keys, values = zip(
      *(split_heads(group, self._num_heads, self._sizes) for group in qkv),
      strict=True,
    )
    query = _first_rows(queries, rows.shape[-2]) * self._query_scale
    attended, weights = dot_product_attention(
      query, keys, values, compute_dtype=compute_dtype(self._policy)
    )
    rows = self._attention_norm(rows + attended)  # [..., M', D]
    return self._mlp_norm(rows + mlp(rows)), weights  # [..., H, M', M]


def _first_rows(groups: Sequence[Array], num_rows: int) -> Array:
  """Returns the first rows of groups of [..., M_i, H, K]."""
  if groups[0].shape[-3] < num_rows:
    return jnp.concatenate(groups, axis=-3)[..., :num_rows, :, :]
  return groups[0][..., :num_rows, :, :]
