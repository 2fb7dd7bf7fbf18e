"""The dynamic memory of a recurrent entity network."""

import dataclasses
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.checks import positive_int
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.layers import compute_dtype
from rmc_jax.cores.layers import Linear
from rmc_jax.cores.memory_matrix import add_batch_axis
from rmc_jax.cores.memory_matrix import flatten_rows
from rmc_jax.cores.memory_matrix import to_float32
from rmc_jax.cores.projected_core import ProjectedCore
from rmc_jax.types import Array

# Shorter slots are not normalised: the gradient of their direction would
# overflow in float32.
_SHORTEST = 1e-10


@dataclasses.dataclass
class EntityNetworkConfig(CoreConfig):
  """The arguments of `EntityNetwork`."""

  name: str = 'entity_network'
  num_slots: int = 20
  slot_size: int = 100
  gate_bias: bool = False


class ProjectedInputs(NamedTuple):
  """The input part of a step of `EntityNetwork`.

  Attributes:
    encoded: [..., D] the encoded input s.
    gates: [..., N] s . w_j, plus the gate's bias if there is one.
    candidates: [..., N, D] V w_j + W s.
  """

  encoded: Array
  gates: Array
  candidates: Array


class EntityNetwork(ProjectedCore):
  r"""N gated slots, updated by inputs that match their content or their key.

  One step of each slot :math:`h_j` with its trained key :math:`w_j`, both [D]:

  .. math::

     \begin{array}{ll}
     s = \mathrm{Linear}(x) & [D] \\
     g_j = \sigma(s \cdot h_j + s \cdot w_j) & [1] \\
     \tilde h_j = \phi(U h_j + V w_j + W s) & [D] \\
     h_j' = (h_j + g_j \tilde h_j) \, / \, \| h_j + g_j \tilde h_j \| & [D]
     \end{array}

  with :math:`\phi(z) = \max(z, 0) + a \min(z, 0)` and a trained slope a for
  each unit. The state is all :math:`h_j'`, [N, D], the output the same
  flattened to N * D. Slots start as their keys.

  Source: Henaff et al. 2017, "Tracking the world state with recurrent entity
  networks", section 2, and the authors' code for bAbI, `EntNet-babi/entnet.lua`
  of facebook/MemNN, for details that the paper omits: slopes start at 1, only U
  has a bias, and slots of length zero are not normalised. Santoro et al. 2018
  call `LSTMBank` EntNet.

  Notes:
    Departures from both: a Linear encodes the input, where theirs is a weighted
    sum of word embeddings; weights start as in `Linear`, and keys with standard
    deviation 1/sqrt(D), where the code has 0.1 for all, the same for keys at
    its D of 100; biases start at zero. Attention of a question over the slots
    belongs to a model around the core. `lengths` of `rmc_jax.unroll` replaces
    their mask, which closes the gates after the end of a story.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    num_slots: int,
    slot_size: int,
    gate_bias: bool = False,
    name: str = 'entity_network',
  ):
    """Constructs the core.

    Args:
      num_slots: N.
      slot_size: D, the width of slots, keys and the encoded input.
      gate_bias: whether to add a trained bias to each slot's gate, as in the
        authors' code but not in their equation.

    Raises:
      TypeError: a size is not an integer.
      ValueError: a size is below 1.
    """
    super().__init__(name=name)
    self._num_slots = positive_int('num_slots', num_slots)
    self._slot_size = positive_int('slot_size', slot_size)

    def linear(name, with_bias=False):
      return Linear(slot_size, with_bias, self._policy, name)

    self._input = linear('input', with_bias=True)
    self._keys = hk.Embed(
      num_slots,
      slot_size,
      # Gives keys a length of about 1, the length of the slots.
      w_init=hk.initializers.TruncatedNormal(1.0 / np.sqrt(slot_size)),
      name='keys',
    )
    self._slot_candidate = linear('slot_candidate', with_bias=True)  # U
    self._key_candidate = linear('key_candidate')  # V
    self._input_candidate = linear('input_candidate')  # W
    self._activation = _PReLU(name='prelu')
    self._gate_bias = _Bias(name='gate_bias') if gate_bias else None

  @hk.transparent
  def initial_state(self, batch_size: int | None) -> Array:
    """Returns the keys, which are parameters and receive gradients from here.

    [B, N, D], or [N, D] for None.
    """
    return add_batch_axis(to_float32(self._keys.embeddings), batch_size)

  @hk.transparent
  def project(self, inputs: Array) -> ProjectedInputs:
    """See base class."""
    encoded = self._input(inputs)  # s
    keys = self._keys.embeddings
    gates = self._match(encoded, keys)  # [..., N]
    if self._gate_bias is not None:
      gates = self._gate_bias(gates)
    shape = (*inputs.shape[:-1], self._num_slots, self._slot_size)
    candidates = jnp.broadcast_to(self._key_candidate(keys), shape)
    from_input = self._input_candidate(encoded)[..., None, :]
    candidates += jnp.broadcast_to(from_input, shape)
    return ProjectedInputs(encoded, gates, candidates)

  @hk.transparent
  def step(
    self, projected: ProjectedInputs, state: Array
  ) -> tuple[Array, Array]:
    """See base class. The output is [..., N * D]."""
    slots = to_float32(state)
    gates = self._match(projected.encoded, slots) + projected.gates
    gates = jax.nn.sigmoid(gates)[..., None]  # [..., N, 1]
    candidates = self._activation(
      self._slot_candidate(slots) + projected.candidates
    )
    slots = _normalize(slots + gates * candidates).astype(state.dtype)
    return self.cast_output(flatten_rows(slots)), slots

  @hk.transparent
  def _match(self, encoded: Array, rows: Array) -> Array:
    """Returns s . v_j, [..., N], for rows v, [..., N, D] or [N, D]."""
    sum_dtype = jnp.promote_types(encoded.dtype, rows.dtype)
    dtype = compute_dtype(self._policy) or sum_dtype
    return jnp.einsum(
      '...d,...nd->...n',
      encoded.astype(dtype),
      rows.astype(dtype),
      preferred_element_type=sum_dtype,
    )


class _PReLU(hk.Module):
  """A ReLU that scales negative inputs by a trained `slope` for each unit."""

  def __call__(self, x: Array) -> Array:
    slope = hk.get_parameter('slope', x.shape[-1:], x.dtype, jnp.ones)
    return jnp.where(x > 0, x, x * jnp.broadcast_to(slope, x.shape))


class _Bias(hk.Module):
  """A trained bias `b` over the last axis."""

  def __call__(self, x: Array) -> Array:
    b = hk.get_parameter('b', x.shape[-1:], x.dtype, jnp.zeros)
    return x + jnp.broadcast_to(b, x.shape)


def _normalize(rows: Array) -> Array:
  """Scales rows [..., D] to length 1, with a finite gradient at zero."""
  squares = jnp.sum(jnp.square(rows), axis=-1, keepdims=True)  # [..., 1]
  # Select before the root, whose gradient at zero is infinite: 0 * inf is nan.
  squares = jnp.where(squares > _SHORTEST**2, squares, 1.0)
  return rows * jax.lax.rsqrt(squares)
