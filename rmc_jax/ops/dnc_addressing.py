r"""Where the heads of a Differentiable Neural Computer write and read.

The letters of `rmc_jax.types`, and for this memory of N slots

  W  width of a word, which is what one slot holds
  R  read heads
  J  write heads (H in Graves et al.; here H are the heads of an attention)
  X  heads of either kind

Source: Graves et al. 2016, "Hybrid computing using a neural network with
dynamic external memory", methods, with what its released code adds: several
write heads, constants against division by zero, and a stopped gradient
(`addressing.py` and `access.py` of google-deepmind/dnc). Weights of one head
are numbers in [0, 1] that sum to 1 at most over the N slots, and so do usages
lie in [0, 1].
"""

import functools

import chex
import jax
import jax.numpy as jnp

from rmc_jax.types import Array

_EPSILON = 1e-6

# These products are small, and feed on their own results for a whole sequence:
# the rounding of the short factors that GPUs and TPUs prefer would add up.
_einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def content_weights(keys: Array, strengths: Array, memory: Array) -> Array:
  r"""Weights of the slots whose words point the way the key does.

  .. math::

     \mathrm{softmax}_n(\log(1 + e^{s_x})
       \frac{k_x \cdot m_n}{|k_x| |m_n| + \epsilon}), \qquad
     |v| = \sqrt{\textstyle\sum_w v_w^2 + \epsilon}, \qquad \epsilon = 10^{-6}

  The strength is at least 0, as in the released code; in Graves et al. it is
  1 + softplus, at least 1.

  Args:
    keys: [..., X, W].
    strengths: [..., X], any real numbers.
    memory: [..., N, W].

  Returns:
    [..., X, N].
  """
  chex.assert_equal_shape([keys[..., 0], strengths])
  products = _einsum('...xw,...nw->...xn', keys, memory)
  norms = _outer(_norm(keys), _norm(memory))
  cosines = products / (norms + _EPSILON)  # [..., X, N]
  return jax.nn.softmax(jax.nn.softplus(strengths)[..., None] * cosines)


def usage_after_writes(usage: Array, write_weights: Array) -> Array:
  r"""Usage that rises where something was written.

  .. math:: u_n + (1 - u_n) (1 - \prod_j (1 - w_{jn}))

  No gradient goes to the write weights, as in the released code.

  Args:
    usage: [..., N].
    write_weights: [..., J, N], of the previous step.

  Returns:
    [..., N].
  """
  untouched = jnp.prod(
    1 - jax.lax.stop_gradient(write_weights), axis=-2
  )  # [..., N]
  return usage + (1 - usage) * (1 - untouched)


def usage_after_reads(
  usage: Array, free_gates: Array, read_weights: Array
) -> Array:
  r"""Usage that falls where a head read and lets go.

  .. math:: u_n \prod_r (1 - f_r w_{rn})

  Args:
    usage: [..., N].
    free_gates: [..., R] in [0, 1]; 1 frees what the head has read.
    read_weights: [..., R, N], of the previous step.

  Returns:
    [..., N].
  """
  return usage * jnp.prod(1 - free_gates[..., None] * read_weights, axis=-2)


def allocation(usage: Array) -> Array:
  r"""Weights of the slots that are free, the least used one first.

  .. math::

     a_n = (1 - v_n) \prod_{m \text{ before } n} v_m, \qquad
     v = \epsilon + (1 - \epsilon) u, \qquad \epsilon = 10^{-6}

  where m comes before n if it is used less, or if they are used alike and it is
  the lower number. The order itself has no gradient.

  The released code sorts the slots and takes a running product. The same
  numbers come here from comparing all pairs and summing logarithms, one small
  product of matrices: nothing is sorted, gathered or scattered, which on a CPU
  took eight times as long.

  Args:
    usage: [..., N].

  Returns:
    [..., N], which sum to 1 less the product of all v.
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
  r"""A slot to allocate for each write head, one head after the other.

  Head j sees the usage as heads before it are about to leave it:
  :math:`u \leftarrow u + (1 - u) g_j a_j`.

  Args:
    usage: [..., N].
    gates: [..., J] in [0, 1], how much each head will write to what it is
      allocated.

  Returns:
    [..., J, N].
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
  r"""Where each head writes, if at all.

  .. math:: g^w_j (g^a_j a_j + (1 - g^a_j) c_j)

  Args:
    write_gates: [..., J] in [0, 1].
    allocation_gates: [..., J] in [0, 1].
    allocations: [..., J, N].
    content: [..., J, N], of `content_weights`.

  Returns:
    [..., J, N].
  """
  gates = allocation_gates[..., None]
  return write_gates[..., None] * (gates * allocations + (1 - gates) * content)


def erase_and_add(
  memory: Array, weights: Array, erase: Array, words: Array
) -> Array:
  r"""The memory after the heads have written.

  .. math:: m_n \circ \prod_j (1 - w_{jn} e_j) + \sum_j w_{jn} v_j

  Args:
    memory: [..., N, W].
    weights: [..., J, N].
    erase: [..., J, W] in [0, 1].
    words: [..., J, W], what to write.

  Returns:
    [..., N, W].
  """
  kept = jnp.prod(1 - _outer(weights, erase), axis=-3)  # [..., N, W]
  return memory * kept + _einsum('...jn,...jw->...nw', weights, words)


def next_link(link: Array, precedence: Array, weights: Array) -> Array:
  r"""Links from each slot to the one written next, for each write head.

  .. math::

     L'_{jnm} = (1 - w_{jn} - w_{jm}) L_{jnm} + w_{jn} p_{jm}, \qquad
     L'_{jnn} = 0

  Args:
    link: [..., J, N, N]; [n, m] is how far n was written right after m.
    precedence: [..., J, N], before this step.
    weights: [..., J, N], of this step's write.

  Returns:
    [..., J, N, N], whose rows and columns sum to 1 at most.
  """
  to, source = weights[..., :, None], weights[..., None, :]
  link = (1 - to - source) * link + _outer(weights, precedence)
  itself = jnp.eye(link.shape[-1], dtype=bool)
  return jnp.where(jnp.broadcast_to(itself, link.shape), 0, link)


def next_precedence(precedence: Array, weights: Array) -> Array:
  r"""How far each slot was the last one written.

  .. math:: (1 - \sum_n w_{jn}) p_j + w_j

  Args:
    precedence: [..., J, N].
    weights: [..., J, N], of this step's write.

  Returns:
    [..., J, N].
  """
  return (1 - weights.sum(axis=-1, keepdims=True)) * precedence + weights


def follow_links(link: Array, weights: Array) -> tuple[Array, Array]:
  r"""What was written just before and just after what a head last read.

  Backward :math:`L_j^T w_r` and forward :math:`L_j w_r`.

  Args:
    link: [..., J, N, N], of this step.
    weights: [..., R, N], of the previous step's read.

  Returns:
    Backward and forward weights, each [..., R, J, N].
  """
  return (
    _einsum('...jmn,...rm->...rjn', link, weights),
    _einsum('...jnm,...rm->...rjn', link, weights),
  )


def read_weights(
  modes: Array, backward: Array, forward: Array, content: Array
) -> Array:
  r"""Where each head reads, between three ways to find a slot.

  .. math::

     \sum_j \pi_{rj} b_{rj} + \sum_j \pi_{r, J + j} f_{rj} + \pi_{r, 2 J} c_r

  Args:
    modes: [..., R, 2 * J + 1] that sum to 1: backward along the links of each
      write head, then forward, then by content.
    backward: [..., R, J, N].
    forward: [..., R, J, N].
    content: [..., R, N], of `content_weights`.

  Returns:
    [..., R, N].
  """
  ways = jnp.concatenate([backward, forward, content[..., None, :]], axis=-2)
  return _einsum('...ri,...rin->...rn', modes, ways)


def read_words(weights: Array, memory: Array) -> Array:
  r"""The word that each head reads.

  .. math:: \sum_n w_{rn} m_n

  Args:
    weights: [..., R, N].
    memory: [..., N, W].

  Returns:
    [..., R, W].
  """
  return _einsum('...rn,...nw->...rw', weights, memory)


def _norm(vectors: Array) -> Array:
  """Lengths of [..., X, W] vectors that have a gradient at zero, [..., X]."""
  return jnp.sqrt(jnp.sum(vectors**2, axis=-1) + _EPSILON)


@jax.custom_jvp
def _outer(x: Array, y: Array) -> Array:
  """[..., N] and [..., M] to [..., N, M].

  The derivative is written as products of matrices, and so is its transpose. Of
  a plain broadcast it would be sums, which XLA for CPUs makes ten times as
  slow; were this a product of matrices too, `rmc_jax.unroll` would keep it.
  """
  return x[..., :, None] * y[..., None, :]


@_outer.defjvp
def _outer_jvp(primals, tangents):
  (x, y), (d_x, d_y) = primals, tangents
  pattern = '...n,...m->...nm'
  return _outer(x, y), _einsum(pattern, d_x, y) + _einsum(pattern, x, d_y)
