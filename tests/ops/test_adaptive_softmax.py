"""Tests rmc_jax/ops/adaptive_softmax.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.ops.adaptive_softmax import adaptive_log_probs
from rmc_jax.ops.adaptive_softmax import adaptive_softmax_shapes
from rmc_jax.ops.adaptive_softmax import AdaptiveWeights
from rmc_jax.ops.blocked_softmax import summed_cross_entropy
from tests.ops.largest_array import largest_array
from tests.reference import softmax as reference

# A head of 5 words of width 13, and tails of 2, 6 and 4 words.
B, T, D, V, CUTOFFS, SHRINK = 3, 6, 13, 17, (5, 7, 13), 2
# The same float64 numbers in another order.
EXACT = {'rtol': 1e-12, 'atol': 1e-12}


def make(dtype=np.float64):
  """Returns hidden [B, T, D], the softmax's weights and weights [B, T]."""
  rng = np.random.default_rng(0)

  def draw(shape):
    return jnp.asarray(rng.normal(size=shape), dtype)

  shapes = adaptive_softmax_shapes(V, CUTOFFS, D, shrink=SHRINK)
  adaptive = AdaptiveWeights(
    draw(shapes.head),
    [draw(shape) for shape in shapes.projections],
    [draw(shape) for shape in shapes.tails],
  )
  return draw((B, T, D)), adaptive, draw((B, T))


def cross_entropy(hidden, adaptive, labels, weights=None, block_size=4):
  log_probs = adaptive_log_probs(
    hidden, adaptive, labels, block_size=block_size
  )
  return summed_cross_entropy(log_probs, weights)


def all_labels():
  """Returns every word, including those beside a cutoff."""
  labels = np.random.default_rng(1).permutation(B * T) % V
  return jnp.asarray(labels.reshape(B, T))


def dense_log_probs(hidden, adaptive):
  """Returns [B, T, V] by a plain softmax, which JAX differentiates."""
  of_head = jax.nn.log_softmax(hidden @ adaptive.head.T)
  groups = [of_head[..., : CUTOFFS[0]]]
  for i, (projection, tail) in enumerate(
    zip(adaptive.projections, adaptive.tails, strict=True)
  ):
    of_tail = jax.nn.log_softmax(hidden @ projection @ tail.T)
    groups.append(of_head[..., CUTOFFS[0] + i, None] + of_tail)
  return jnp.concatenate(groups, axis=-1)


def test_shapes_equal_hand_calculation():
  shapes = adaptive_softmax_shapes(267_735, (20_000, 40_000, 200_000), 512)
  assert shapes == AdaptiveWeights(
    head=(20_003, 512),
    projections=[(512, 128), (512, 32), (512, 8)],
    tails=[(20_000, 128), (160_000, 32), (67_735, 8)],
  )
  # 13 / 2, 13 / 4 and 13 / 8, rounded down.
  shapes = adaptive_softmax_shapes(V, CUTOFFS, D, shrink=SHRINK)
  assert shapes.tails == [(2, 6), (6, 3), (4, 1)]


@pytest.mark.parametrize('block_size', [1, 4, 50])
def test_probabilities_equal_the_reference_and_sum_to_one(block_size):
  with jax.enable_x64(True):
    hidden, adaptive, _ = make()
    labels = jnp.broadcast_to(jnp.arange(V), (B, T, V))
    got = adaptive_log_probs(
      jnp.repeat(hidden[:, :, None], V, axis=2),
      adaptive,
      labels,
      block_size=block_size,
    )
    wanted = reference.adaptive_distribution(
      hidden.reshape(B * T, D),
      adaptive.head,
      list(zip(adaptive.projections, adaptive.tails, strict=True)),
    )
    np.testing.assert_allclose(np.exp(got), wanted.reshape(B, T, V), **EXACT)
    np.testing.assert_allclose(np.exp(got).sum(-1), 1.0, **EXACT)


def test_loss_and_gradients_equal_the_dense_distribution():
  with jax.enable_x64(True):
    hidden, adaptive, weights = make()
    labels = all_labels()

    def loss(hidden, adaptive):
      return cross_entropy(hidden, adaptive, labels, weights)

    def dense(hidden, adaptive):
      of_words = dense_log_probs(hidden, adaptive)
      own = jnp.take_along_axis(of_words, labels[..., None], axis=-1)[..., 0]
      return -(weights * own).sum(), weights.sum()

    got, wanted = (
      jax.jit(jax.value_and_grad(f, (0, 1), has_aux=True))(hidden, adaptive)
      for f in (loss, dense)
    )
    for g, w in zip(*map(jax.tree.leaves, (got, wanted)), strict=True):
      np.testing.assert_allclose(g, w, **EXACT)


def test_masked_labels_are_ignored():
  with jax.enable_x64(True):
    hidden, adaptive, _ = make()
    labels = all_labels()
    mask = np.ones((B, T), bool)
    mask[1, 2:5] = False

    @jax.jit
    def loss_and_gradient(labels):
      return jax.value_and_grad(
        lambda hidden, adaptive: cross_entropy(
          hidden, adaptive, labels, jnp.asarray(mask)
        ),
        (0, 1),
        has_aux=True,
      )(hidden, adaptive)

    got = loss_and_gradient(labels.at[1, 2:5].set(jnp.array([V, V + 90, -1])))
    wanted = loss_and_gradient(labels)
    for g, w in zip(*map(jax.tree.leaves, (got, wanted)), strict=True):
      np.testing.assert_array_equal(g, w)
    (_, weight), (d_hidden, _) = got
    assert weight == B * T - 3
    np.testing.assert_array_equal(np.any(d_hidden != 0, axis=-1), mask)


@pytest.mark.parametrize('label', [V, V + 1, -1])
def test_label_out_of_range_gives_nan(label):
  hidden, adaptive, _ = make(np.float32)
  got = adaptive_log_probs(
    hidden, adaptive, all_labels().at[2, 1].set(label), block_size=4
  )
  assert np.argwhere(np.isnan(got)).tolist() == [[2, 1]]


def test_bfloat16_weights_are_summed_in_float32():
  hidden, adaptive, _ = make(np.float32)
  labels = all_labels()
  narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), (hidden, adaptive))
  got, exact = (
    adaptive_log_probs(*args, labels, block_size=4)
    for args in (narrow, (hidden, adaptive))
  )
  assert got.dtype == jnp.float32
  # Logits are up to 20, and bfloat16 factors keep 8 bits.
  np.testing.assert_allclose(got, exact, atol=20 * 2**-8 * 2)
  assert np.abs(got - exact).max() > 1e-3


def test_no_array_holds_all_rows_by_all_words_of_a_tail():
  rows, width, block = 60, 4, 16
  shapes = adaptive_softmax_shapes(1000, (20, 100), width, shrink=2)
  adaptive = jax.tree.map(
    jnp.ones, shapes, is_leaf=lambda x: isinstance(x[0], int)
  )

  def loss(hidden, adaptive):
    return cross_entropy(
      hidden, adaptive, jnp.zeros(rows, int), block_size=block
    )[0]

  hidden = jnp.ones((rows, width))
  for function in loss, jax.grad(loss, (0, 1)):
    # This exceeds the weights of the last tail, 900 of width 1.
    assert largest_array(function, hidden, adaptive) == rows * block


@pytest.mark.parametrize('cutoffs', [(), (0, 5), (5, 5), (7, 5), (5, V)])
def test_refuses_cutoffs_that_do_not_increase(cutoffs):
  with pytest.raises(
    ValueError, match='cutoffs must be one or more increasing'
  ) as error:
    adaptive_softmax_shapes(V, cutoffs, D)
  assert str(cutoffs) in str(error.value)


def test_refuses_a_tail_of_width_zero():
  with pytest.raises(ValueError, match='width must be at least 64') as error:
    adaptive_softmax_shapes(V, CUTOFFS, D)
  assert 'Got: 13' in str(error.value)


def test_refuses_weights_of_inconsistent_shapes():
  hidden, adaptive, _ = make(np.float32)
  labels = all_labels()

  def check(adaptive):
    return adaptive_log_probs(hidden, adaptive, labels, block_size=4)

  with pytest.raises(ValueError, match='8 rows, with 2 proj.* and 3 tails'):
    check(adaptive._replace(projections=adaptive.projections[1:]))
  with pytest.raises(ValueError, match='3 rows, with 3 proj.* and 3 tails'):
    check(adaptive._replace(head=adaptive.head[:3]))
  with pytest.raises(AssertionError):
    check(adaptive._replace(projections=adaptive.projections[::-1]))
