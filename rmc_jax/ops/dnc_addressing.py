r"""Addressing of a Differentiable Neural Computer's memory.

Shapes use the letters of `rmc_jax.types` and, for a memory of N slots,

  W  width of a word, the content of one slot
  R  read heads
  J  write heads (H in Graves et al.; here H are attention heads)
  X  heads of either kind

Unless a function says otherwise, its arguments and results are

  memory      [..., N, W]
  usage       [..., N]
  precedence  [..., J, N]
  link        [..., J, N, N]; [n, m] is the degree to which n was written right
              after m
  weights     [..., X, N], of the write heads [..., J, N]
  gates       [..., X] in [0, 1]

Source: Graves et al. 2016, "Hybrid computing using a neural network with
dynamic external memory", methods, with the additions of the released code:
several write heads, constants that prevent division by zero, and a stopped
gradient (`addressing.py` and `access.py` of google-deepmind/dnc). The weights
of a head are in [0, 1] and sum to at most 1 over the N slots; usages are in
[0, 1].
"""

import functools

import chex
import jax
import jax.numpy as jnp

from rmc_jax.types import Array

_EPSILON = 1e-6

# These small products recur over a whole sequence, where the rounding of the
# low-precision factors that GPUs and TPUs use by default would accumulate.
_einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def content_weights(keys: Array, strengths: Array, memory: Array) -> Array:
  r"""Weights slots by the cosine similarity of their words and the key.

  .. math::

     \mathrm{softmax}_n(\log(1 + e^{s_x})
       \frac{k_x \cdot m_n}{|k_x| |m_n| + \epsilon}), \qquad
     |v| = \sqrt{\textstyle\sum_w v_w^2 + \epsilon}, \qquad \epsilon = 10^{-6}

  The strength is softplus, at least 0, as in the released code; in Graves et
  al. it is 1 + softplus.

  Keys are [..., X, W], strengths [..., X], before the softplus.
  """
  chex.assert_equal_shape([keys[..., 0], strengths])
  products = _einsum('...xw,...nw->...xn', keys, memory)
  norms = _outer(_norm(keys), _norm(memory))
  cosines = products / (norms + _EPSILON)  # [..., X, N]
  return jax.nn.softmax(jax.nn.softplus(strengths)[..., None] * cosines)


def usage_after_writes(usage: Array, write_weights: Array) -> Array:
  r"""Increases the usage of the slots that were written.

  .. math:: u_n + (1 - u_n) (1 - \prod_j (1 - w_{jn}))

  The write weights are those of the previous step, and receive no gradient, as
  in the released code.
  """
  untouched = jnp.prod(1 - jax.lax.stop_gradient(write_weights), axis=-2)
  return usage + (1 - usage) * (1 - untouched)


def usage_after_reads(
  usage: Array, free_gates: Array, read_weights: Array
) -> Array:
  r"""Decreases the usage of the slots that were read and freed.

  .. math:: u_n \prod_r (1 - f_r w_{rn})

  The read weights are those of the previous step. A gate of 1 frees the slots
  that its head read.
  """
  return usage * jnp.prod(1 - free_gates[..., None] * read_weights, axis=-2)


def allocation(usage: Array) -> Array:
  r"""Weights free slots, the least used slot first.

  .. math::

     a_n = (1 - v_n) \prod_{m \text{ before } n} v_m, \qquad
     v = \epsilon + (1 - \epsilon) u, \qquad \epsilon = 10^{-6}

  where m is before n if its usage is lower, or equal and m < n. The order has
  no gradient.

  The released code sorts the slots and takes a cumulative product. Comparing
  all pairs and summing logarithms by a small matrix product gives the same
  numbers; sorting, gathering and scattering took eight times as long on a CPU.

  The result sums to 1 - the product of all v.
  """
  used = _EPSILON + (1 - _EPSILON) * usage
  this, other = usage[..., :, None], usage[..., None, :]
  lower = jnp.tri(usage.shape[-1], k=-1, dtype=bool)  # [N, N], n > m
  alike = (this == other) & jnp.broadcast_to(lower, (this == other).shape)
  before = ((other < this) | alike).astype(used.dtype)  # [..., N, N]
  return (1 - used) * jnp.exp(
    _einsum('...nm,...m->...n', before, jnp.log(used))
  )


def write_allocations(usage: Array, gates: Array) -> Array:
  r"""Allocates free slots to each write head in turn.

  After head j, which writes to its allocation to the degree :math:`g_j`, the
  usage becomes :math:`u \leftarrow u + (1 - u) g_j a_j`.
  """
  allocations = []
  for j in range(gates.shape[-1]):
    if j:
      usage = usage + (1 - usage) * gates[..., j - 1, None] * allocations[-1]
    allocations.append(allocation(usage))
  return jnp.stack(allocations, axis=-2)


def write_weights(
  write_gates: Array,
  allocation_gates: Array,
  allocations: Array,
  content: Array,
) -> Array:
  r"""Combines allocation and content weights into write weights.

  .. math:: g^w_j (g^a_j a_j + (1 - g^a_j) c_j)

  The allocations :math:`a` are from `write_allocations`, the content :math:`c`
  is from `content_weights`.
  """
  gates = allocation_gates[..., None]
  return write_gates[..., None] * (gates * allocations + (1 - gates) * content)


def erase_and_add(
  memory: Array, weights: Array, erase: Array, words: Array
) -> Array:
  r"""Erases and writes the memory.

  .. math:: m_n \circ \prod_j (1 - w_{jn} e_j) + \sum_j w_{jn} v_j

  The erase vectors e, in [0, 1], and the words v are [..., J, W].
  """
  kept = jnp.prod(1 - _outer(weights, erase), axis=-3)  # [..., N, W]
  return memory * kept + _einsum('...jn,...jw->...nw', weights, words)


def next_link(link: Array, precedence: Array, weights: Array) -> Array:
  r"""Updates the links between slots written in succession.

  .. math::

     L'_{jnm} = (1 - w_{jn} - w_{jm}) L_{jnm} + w_{jn} p_{jm}, \qquad
     L'_{jnn} = 0

  The precedence is that before this step, the weights are of this step's write.
  Rows and columns of the result sum to at most 1.
  """
  to, source = weights[..., :, None], weights[..., None, :]
  link = (1 - to - source) * link + _outer(weights, precedence)
  itself = jnp.eye(link.shape[-1], dtype=bool)
  return jnp.where(jnp.broadcast_to(itself, link.shape), 0, link)


def next_precedence(precedence: Array, weights: Array) -> Array:
  r"""Updates the degree to which each slot was written last.

  .. math:: (1 - \sum_n w_{jn}) p_j + w_j

  The weights are of this step's write.
  """
  return (1 - weights.sum(axis=-1, keepdims=True)) * precedence + weights


def follow_links(link: Array, weights: Array) -> tuple[Array, Array]:
  r"""Weights the slots written just before and after those last read.

  The link is that of this step, the weights are of the previous step's read.

  Returns:
    Backward weights :math:`L_j^T w_r` and forward weights :math:`L_j w_r`, each
    [..., R, J, N].
  """
  return (
    _einsum('...jmn,...rm->...rjn', link, weights),
    _einsum('...jnm,...rm->...rjn', link, weights),
  )


def read_weights(
  modes: Array, backward: Array, forward: Array, content: Array
) -> Array:
  r"""Combines backward, forward and content weights into read weights.

  .. math::

     \sum_j \pi_{rj} b_{rj} + \sum_j \pi_{r, J + j} f_{rj} + \pi_{r, 2 J} c_r

  Args:
    modes: [..., R, 2 * J + 1], which sum to 1: backward along the links of each
      write head, forward along them, and by content.
    backward: [..., R, J, N] from `follow_links`.
    forward: [..., R, J, N] from `follow_links`.
    content: [..., R, N] from `content_weights`.
  """
  ways = jnp.concatenate([backward, forward, content[..., None, :]], axis=-2)
  return _einsum('...ri,...rin->...rn', modes, ways)


def read_words(weights: Array, memory: Array) -> Array:
  r"""Reads a word with each head, :math:`\sum_n w_{rn} m_n`, [..., R, W]."""
  return _einsum('...rn,...nw->...rw', weights, memory)


def _norm(vectors: Array) -> Array:
  """Returns lengths [..., X] of [..., X, W], differentiable at zero."""
  return jnp.sqrt(jnp.sum(vectors**2, axis=-1) + _EPSILON)


@jax.custom_jvp
def _outer(x: Array, y: Array) -> Array:
  """Returns the outer product of [..., N] and [..., M], [..., N, M].

  The derivative and its transpose use matrix products. Those of a broadcast are
  sums, which are ten times slower with XLA for CPUs. The product itself is a
  broadcast so that `rmc_jax.unroll` does not keep it for the backward pass.
  """
  return x[..., :, None] * y[..., None, :]


@_outer.defjvp
def _outer_jvp(primals, tangents):
  (x, y), (d_x, d_y) = primals, tangents
  pattern = '...n,...m->...nm'
  return _outer(x, y), _einsum(pattern, d_x, y) + _einsum(pattern, x, d_y)
