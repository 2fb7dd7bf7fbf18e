"""Tests rmc_jax/ops/dnc_addressing.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.ops import dnc_addressing as addressing
from tests.reference import dnc as reference

# Slots, word width, read heads, write heads and two leading axes.
N, W, R, J, LEAD = 7, 5, 3, 2, (4, 6)

# A few float32 roundings of values of order 1.
ATOL = 1e-6


def uniform(*shape, seed=0):
  return jnp.asarray(np.random.default_rng(seed).uniform(size=shape), 'float32')


def weights(*shape, seed=0):
  """Returns weights that sum to less than 1 over the last axis."""
  x = uniform(*shape, seed=seed)
  return 0.9 * x / x.sum(axis=-1, keepdims=True)


def one_hot(*slots):
  return jax.nn.one_hot(jnp.array(slots), N)


def test_content_weights_equal_hand_calculation():
  memory = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
  got = addressing.content_weights(
    jnp.array([[1.0, 0.0]]), jnp.array([1.0]), memory
  )
  # Cosines 1, 0 and 0.7071, times softplus(1) = 1.3133.
  np.testing.assert_allclose(got, [[0.5129, 0.1379, 0.3491]], atol=5e-5)


def test_usage_equals_hand_calculation():
  usage = addressing.usage_after_writes(
    jnp.array([0.2, 0.5]), jnp.array([[0.5, 0.5]])
  )
  np.testing.assert_allclose(usage, [0.6, 0.75], atol=ATOL)
  usage = addressing.usage_after_reads(
    usage, jnp.array([1.0]), jnp.array([[1.0, 0.0]])
  )
  np.testing.assert_allclose(usage, [0.0, 0.75], atol=ATOL)
  # Two heads leave 0.5 * 0.8 of slot 0 unwritten and 0.75 * 0.9 unfreed.
  usage = addressing.usage_after_writes(
    jnp.array([0.0]), jnp.array([[0.5], [0.2]])
  )
  np.testing.assert_allclose(usage, [0.6], atol=ATOL)
  usage = addressing.usage_after_reads(
    jnp.array([1.0]), jnp.array([0.5, 0.1]), jnp.array([[0.5], [1.0]])
  )
  np.testing.assert_allclose(usage, [0.675], atol=ATOL)


def test_allocation_equals_hand_calculation():
  got = addressing.allocation(jnp.array([0.1, 0.9, 0.5, 0.3]))
  np.testing.assert_allclose(got, [0.9, 0.0015, 0.015, 0.07], atol=2e-6)
  np.testing.assert_allclose(got.sum(), 0.9865, atol=1e-5)


def test_allocation_chooses_the_unused_slot():
  usage = jnp.ones(N).at[4].set(0.0)
  np.testing.assert_allclose(
    addressing.allocation(usage), one_hot(4)[0], atol=2e-6
  )
  # If all are free, almost all weight is on the first.
  np.testing.assert_allclose(
    addressing.allocation(jnp.zeros(N)), one_hot(0)[0], atol=2e-6
  )
  # If none is free, no slot has weight.
  np.testing.assert_array_equal(addressing.allocation(jnp.ones(N)), 0.0)


def test_allocation_equals_sorting():
  usage = np.array(uniform(*LEAD, N))
  usage[0, :, 2:5] = usage[0, :, :1]  # Ties.
  usage[1, :, 3] = 0.0
  usage[2, :, 3] = 1.0
  got = addressing.allocation(jnp.asarray(usage))
  for index in np.ndindex(LEAD):
    expected = reference.allocation(np.float64(usage[index]))
    np.testing.assert_allclose(got[index], expected, atol=ATOL)
    assert expected.sum() <= 1
  # The paper's number of slots, with usages that differ little.
  usage = 0.5 + 1e-4 * uniform(80)
  np.testing.assert_allclose(
    addressing.allocation(usage),
    reference.allocation(np.float64(usage)),
    atol=ATOL,
  )


@pytest.mark.parametrize(
  'usage', [jnp.zeros(N), jnp.ones(N), jnp.full(N, 0.3), uniform(N)]
)
def test_allocation_has_finite_gradients_at_a_fixed_order(usage):
  along = jnp.asarray(np.random.default_rng(1).normal(size=N))
  gradient = jax.grad(lambda u: addressing.allocation(u) @ along)(usage)
  assert np.isfinite(gradient).all()
  # At a fixed order, a of the k-th slot is (1 - v_k) prod of those before it.
  v = np.float64(reference.EPSILON + (1 - reference.EPSILON) * usage)
  order = np.argsort(v, kind='stable')
  expected = np.zeros(N)
  for k, n in enumerate(order):
    before = v[order[:k]]
    expected[n] -= along[n] * before.prod()
    for i, m in enumerate(order[:k]):
      others = np.delete(before, i).prod()
      expected[m] += along[n] * (1 - v[n]) * others
  np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5)


def test_later_write_heads_see_the_allocations_of_earlier_ones():
  usage = jnp.array([1.0, 0.0, 1.0, 0.2])
  # The first head writes fully, not at all, or by half.
  for gate, second in ((1.0, 3), (0.0, 1)):
    got = addressing.write_allocations(usage, jnp.array([gate, 0.7]))
    np.testing.assert_allclose(got[0], jax.nn.one_hot(1, 4), atol=2e-6)
    assert got[1].argmax() == second
  got = addressing.write_allocations(usage, jnp.array([0.5, 0.7]))
  np.testing.assert_allclose(
    got[1], reference.allocation(np.array([1.0, 0.5, 1.0, 0.2])), atol=ATOL
  )


def test_write_weights_interpolate_allocation_and_content():
  free, content = weights(J, N), weights(J, N, seed=1)
  got = addressing.write_weights(
    jnp.array([1.0, 0.5]), jnp.array([1.0, 0.25]), free, content
  )
  np.testing.assert_allclose(got[0], free[0], atol=ATOL)
  np.testing.assert_allclose(
    got[1], 0.125 * free[1] + 0.375 * content[1], atol=ATOL
  )


def test_erases_and_writes_the_weighted_slots():
  memory = uniform(N, W)
  erase = jnp.stack([jnp.ones(W), jnp.zeros(W)])
  words = uniform(J, W, seed=1)
  got = addressing.erase_and_add(memory, one_hot(4, 2), erase, words)
  expected = memory.at[4].set(words[0]).at[2].add(words[1])
  np.testing.assert_allclose(got, expected, atol=ATOL)


def test_links_follow_the_order_of_writing():
  link, precedence = jnp.zeros((J, N, N)), jnp.zeros((J, N))
  # Head 0 writes to 5, 1, 3; head 1 to 0, 6, 2.
  for slots in ((5, 0), (1, 6), (3, 2)):
    link = addressing.next_link(link, precedence, one_hot(*slots))
    precedence = addressing.next_precedence(precedence, one_hot(*slots))
  np.testing.assert_array_equal(precedence, one_hot(3, 2))
  expected = np.zeros((J, N, N))
  expected[0, 1, 5] = expected[0, 3, 1] = 1
  expected[1, 6, 0] = expected[1, 2, 6] = 1
  np.testing.assert_array_equal(link, expected)
  backward, forward = addressing.follow_links(link, one_hot(5, 1, 6))
  np.testing.assert_array_equal(forward[:, 0], one_hot(1, 3, -1))
  np.testing.assert_array_equal(forward[:, 1], one_hot(-1, -1, 2))
  np.testing.assert_array_equal(backward[:, 0], one_hot(-1, 5, -1))
  np.testing.assert_array_equal(backward[:, 1], one_hot(-1, -1, 0))


def test_no_write_keeps_links_and_precedence():
  link = weights(J, N, N) * (1 - jnp.eye(N))[None]
  precedence, nothing = weights(J, N), jnp.zeros((J, N))
  np.testing.assert_array_equal(
    addressing.next_link(link, precedence, nothing), link
  )
  np.testing.assert_array_equal(
    addressing.next_precedence(precedence, nothing), precedence
  )


def test_read_modes_are_backward_then_forward_then_content():
  backward, forward = uniform(R, J, N), uniform(R, J, N, seed=1)
  content = uniform(R, N, seed=2)
  for i, ways in enumerate(
    (backward[:, 0], backward[:, 1], forward[:, 0], forward[:, 1], content)
  ):
    modes = jnp.tile(jax.nn.one_hot(i, 2 * J + 1), (R, 1))
    got = addressing.read_weights(modes, backward, forward, content)
    np.testing.assert_array_equal(got, ways)


def test_invariants_of_weights_usage_and_links():
  rng = np.random.default_rng(3)
  memory, usage = jnp.zeros((*LEAD, N, W)), jnp.zeros((*LEAD, N))
  link, precedence = jnp.zeros((*LEAD, J, N, N)), jnp.zeros((*LEAD, J, N))
  written, read = jnp.zeros((*LEAD, J, N)), jnp.zeros((*LEAD, R, N))

  def gates(*shape):  # Often all but open or shut.
    x = jnp.asarray(10 * rng.normal(size=(*LEAD, *shape)), 'float32')
    return jax.nn.sigmoid(x)

  def normal(*shape):
    return jnp.asarray(3 * rng.normal(size=(*LEAD, *shape)), 'float32')

  for _ in range(9):
    usage = addressing.usage_after_writes(usage, written)
    usage = addressing.usage_after_reads(usage, gates(R), read)
    allocate, write = gates(J), gates(J)
    allocations = addressing.write_allocations(usage, allocate * write)
    written = addressing.write_weights(
      write,
      allocate,
      allocations,
      addressing.content_weights(normal(J, W), normal(J), memory),
    )
    memory = addressing.erase_and_add(
      memory, written, gates(J, W), normal(J, W)
    )
    link = addressing.next_link(link, precedence, written)
    precedence = addressing.next_precedence(precedence, written)
    read = addressing.read_weights(
      jax.nn.softmax(normal(R, 2 * J + 1)),
      *addressing.follow_links(link, read),
      addressing.content_weights(normal(R, W), normal(R), memory),
    )
    for name, x in {
      'usage': usage[..., None],
      'allocations': allocations,
      'written': written,
      'rows': link,
      'columns': link.swapaxes(-1, -2),
      'precedence': precedence,
      'read': read,
    }.items():
      assert x.min() >= -ATOL, name
      assert x.sum(axis=-1).max() <= 1 + 1e-5, name
    np.testing.assert_array_equal(jnp.diagonal(link, axis1=-2, axis2=-1), 0.0)
  # The heads did write.
  assert read.sum(axis=-1).max() > 0.9
  assert link.sum(axis=-1).max() > 0.9


def test_write_weights_have_no_gradient_through_usage():
  usage, written = uniform(N), weights(J, N)
  along = uniform(N, seed=1)

  def loss(usage, written):
    return addressing.usage_after_writes(usage, written) @ along

  d_usage, d_written = jax.grad(loss, argnums=(0, 1))(usage, written)
  np.testing.assert_array_equal(d_written, 0.0)
  assert np.abs(d_usage).min() > 0
  d_read = jax.grad(
    lambda read: addressing.usage_after_reads(usage, uniform(R), read) @ along
  )(weights(R, N))
  assert np.abs(d_read).min() > 0


@pytest.mark.parametrize(
  'name, shapes',
  [
    ('content_weights', [(R, W), (R,), (N, W)]),
    ('usage_after_writes', [(N,), (J, N)]),
    ('usage_after_reads', [(N,), (R,), (R, N)]),
    ('allocation', [(N,)]),
    ('write_allocations', [(N,), (J,)]),
    ('write_weights', [(J,), (J,), (J, N), (J, N)]),
    ('erase_and_add', [(N, W), (J, N), (J, W), (J, W)]),
    ('next_link', [(J, N, N), (J, N), (J, N)]),
    ('next_precedence', [(J, N), (J, N)]),
    ('follow_links', [(J, N, N), (R, N)]),
    ('read_weights', [(R, 2 * J + 1), (R, J, N), (R, J, N), (R, N)]),
    ('read_words', [(R, N), (N, W)]),
  ],
)
def test_leading_axes_are_independent_examples(name, shapes):
  function = getattr(addressing, name)
  args = [uniform(*LEAD, *shape, seed=i) / N for i, shape in enumerate(shapes)]
  together = jax.tree.leaves(function(*args))
  apart = jax.tree.leaves(function(*(arg[3, 1] for arg in args)))
  for got, expected in zip(together, apart, strict=True):
    assert got.dtype == np.float32
    np.testing.assert_allclose(got[3, 1], expected, atol=ATOL)


def test_refuses_mismatched_heads_and_strengths():
  with pytest.raises(AssertionError):
    addressing.content_weights(uniform(R, W), uniform(J), uniform(N, W))
