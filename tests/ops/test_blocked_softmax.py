"""Tests rmc_jax/ops/blocked_softmax.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import losses
from rmc_jax.ops.blocked_softmax import blocked_log_probs
from rmc_jax.ops.blocked_softmax import summed_cross_entropy
from tests.ops.largest_array import largest_array
from tests.reference import softmax as reference

B, T, D, V = 3, 5, 7, 11
# One word, a remainder in the last block, one word less than all, all, more.
BLOCK_SIZES = [1, 4, 10, 11, 50]
# The same float64 numbers in another order.
EXACT = {'rtol': 1e-12, 'atol': 1e-12}
# float32 sums of D = 7 products and V = 11 probabilities, of order 1.
SINGLE = {'rtol': 1e-5, 'atol': 1e-5}


def make(dtype=np.float64):
  """Returns hidden [B, T, D], embeddings and weights."""
  rng = np.random.default_rng(0)
  shapes = (B, T, D), (V, D), (B, T)
  return [jnp.asarray(rng.normal(size=s), dtype) for s in shapes]


def all_labels():
  """Returns every word, including the first and last of each block."""
  labels = np.random.default_rng(1).permutation(B * T) % V
  return jnp.asarray(labels.reshape(B, T))


def expected(hidden, embeddings, weights, labels):
  """Returns the reference's sum and gradients."""
  hidden, embeddings, weights = map(np.float64, (hidden, embeddings, weights))
  total, slopes = reference.cross_entropy(
    hidden.reshape(B * T, D),
    embeddings,
    np.ravel(labels),
    weights.ravel(),
  )
  slopes['hidden'] = slopes['hidden'].reshape(B, T, D)
  return total, list(slopes.values())


def cross_entropy(hidden, embeddings, labels, weights=None, block_size=4):
  log_probs = blocked_log_probs(
    hidden, embeddings, labels, block_size=block_size
  )
  return summed_cross_entropy(log_probs, weights)


def summed(labels, weights=None, **kwargs):
  """Returns the loss as a function of hidden and embeddings."""
  return lambda hidden, embeddings: cross_entropy(
    hidden, embeddings, labels, weights, **kwargs
  )[0]


@pytest.mark.parametrize('block_size', BLOCK_SIZES)
def test_loss_and_gradients_equal_the_reference(block_size):
  with jax.enable_x64(True):
    *args, weights = make()
    labels = all_labels()
    total, gradients = jax.value_and_grad(
      summed(labels, weights, block_size=block_size), (0, 1)
    )(*args)
    wanted, slopes = expected(*args, weights, labels)
    np.testing.assert_allclose(total, wanted, **EXACT)
    for gradient, slope in zip(gradients, slopes, strict=True):
      np.testing.assert_allclose(gradient, slope, **EXACT)


def test_float32_equals_the_plain_loss():
  hidden, embeddings, weights = make(np.float32)
  labels = all_labels()

  def plain(hidden, embeddings):
    logits = hidden @ embeddings.T
    return losses.softmax_cross_entropy(logits, labels, weights)[0]

  got = jax.value_and_grad(summed(labels, weights, block_size=4), (0, 1))
  wanted = jax.value_and_grad(plain, (0, 1))
  for g, w in zip(
    jax.tree.leaves(got(hidden, embeddings)),
    jax.tree.leaves(wanted(hidden, embeddings)),
    strict=True,
  ):
    assert g.dtype == jnp.float32
    np.testing.assert_allclose(g, w, **SINGLE)


def test_log_probs_equal_the_reference_at_each_position():
  hidden, embeddings, _ = make(np.float32)
  labels = all_labels()
  got = blocked_log_probs(hidden, embeddings, labels, block_size=4)
  logits = np.float64(hidden) @ np.float64(embeddings).T
  wanted = reference.log_probs(logits.reshape(B * T, V))
  wanted = wanted[np.arange(B * T), np.ravel(labels)].reshape(B, T)
  assert got.dtype == jnp.float32
  np.testing.assert_allclose(got, wanted, **SINGLE)


@pytest.mark.parametrize('block_size', BLOCK_SIZES)
def test_large_logits_do_not_overflow(block_size):
  logits = np.float32(1e4) * np.linspace(-1, 1, V, dtype=np.float32)[None]
  labels = jnp.asarray([3])
  got, (gradient, _) = jax.value_and_grad(
    summed(labels, block_size=block_size), (0, 1)
  )(jnp.asarray(logits), jnp.eye(V))
  # The largest logit has all of the probability.
  assert got == logits[0, V - 1] - logits[0, 3]
  np.testing.assert_array_equal(gradient[0], np.eye(V)[V - 1] - np.eye(V)[3])


def test_a_large_offset_of_all_logits_loses_no_precision():
  logits = jnp.arange(V, dtype=jnp.float32)[:, None]  # [V, D = 1]

  def log_probs(logits):
    return blocked_log_probs(
      jnp.ones((V, 1)), logits, jnp.arange(V), block_size=4
    )

  # float32 represents integers below 2^24 exactly.
  np.testing.assert_array_equal(log_probs(logits + 2**20), log_probs(logits))


def test_masked_labels_are_ignored():
  with jax.enable_x64(True):
    *args, _ = make()
    labels = all_labels()
    mask = np.ones((B, T), bool)
    mask[1, 2:] = False
    padded = jnp.asarray(np.where(mask, labels, [[V], [V + 90], [-1]]))
    padded = padded.at[1, 3].set(-1)
    wanted, slopes = expected(*args, mask, labels)
    (total, weight), gradients = jax.value_and_grad(
      lambda *args: cross_entropy(*args, padded, jnp.asarray(mask)),
      (0, 1),
      has_aux=True,
    )(*args)
    np.testing.assert_allclose(total, wanted, **EXACT)
    assert weight == B * T - 3
    for gradient, slope in zip(gradients, slopes, strict=True):
      np.testing.assert_allclose(gradient, slope, **EXACT)


@pytest.mark.parametrize('label', [V, V + 3, -1])
@pytest.mark.parametrize('block_size', [4, V])
def test_label_out_of_range_gives_nan(label, block_size):
  hidden, embeddings, _ = make(np.float32)
  labels = all_labels().at[1, 4].set(label)
  got = blocked_log_probs(hidden, embeddings, labels, block_size=block_size)
  assert np.argwhere(np.isnan(got)).tolist() == [[1, 4]]
  assert np.isnan(summed(labels, block_size=block_size)(hidden, embeddings))


@pytest.mark.parametrize('mapped', [jax.vmap, jax.pmap])
def test_mapped_examples_equal_single_examples(mapped):
  hidden, embeddings, weights = make(np.float32)

  @jax.jit
  def loss_and_gradient(*row):
    return jax.value_and_grad(
      lambda hidden, labels, weights: cross_entropy(
        hidden, embeddings, labels, weights
      ),
      has_aux=True,
    )(*row)

  rows = hidden, all_labels(), weights
  each = [loss_and_gradient(*row) for row in zip(*rows, strict=True)]
  for got, *wanted in zip(
    jax.tree.leaves(mapped(loss_and_gradient)(*rows)),
    *map(jax.tree.leaves, each),
    strict=True,
  ):
    np.testing.assert_allclose(got, np.stack(wanted), **SINGLE)


def test_no_array_holds_all_rows_by_all_words():
  rows, width, words, block = 60, 3, 101, 8
  hidden = jnp.ones((rows, width))
  embeddings = jnp.ones((words, width))
  labels = jnp.zeros(rows, int)
  blocked = summed(labels, block_size=block)

  def plain(hidden, embeddings):
    return losses.softmax_cross_entropy(hidden @ embeddings.T, labels)[0]

  for loss, largest in (blocked, rows * block), (plain, rows * words):
    for function in loss, jax.grad(loss, (0, 1)):
      assert largest_array(function, hidden, embeddings) == largest


def test_compiled_memory_scales_with_the_block():
  rows, width, words, block = 64, 3, 4001, 100
  args = [
    jax.ShapeDtypeStruct(shape, jnp.float32)
    for shape in ((rows, width), (words, width))
  ]
  loss = summed(jnp.zeros(rows, int), block_size=block)
  for function in loss, jax.grad(loss, (0, 1)):
    compiled = jax.jit(function).lower(*args).compile()
    # A few times R * C numbers, where V is 40 times C.
    assert compiled.memory_analysis().temp_size_in_bytes < 4 * (
      4 * rows * block + 2 * words * width
    )


def test_bfloat16_factors_are_summed_in_float32():
  *args, weights = make(np.float32)
  labels = all_labels()
  args = [x.astype(jnp.bfloat16) for x in args]
  total, gradients = jax.value_and_grad(
    summed(labels, weights, block_size=4), (0, 1)
  )(*args)
  wanted, slopes = expected(*args, weights, labels)
  # Products of bfloat16 numbers are exact in float32.
  assert total.dtype == jnp.float32
  np.testing.assert_allclose(total, wanted, **SINGLE)
  for gradient, slope in zip(gradients, slopes, strict=True):
    assert gradient.dtype == jnp.bfloat16
    # The gradients of the logits are rounded to 8 bits in B * T = 15 or V = 11
    # terms.
    np.testing.assert_allclose(np.float32(gradient), slope, atol=2**-8 * 4)


@pytest.mark.parametrize(
  'name, shape',
  [
    ('hidden', (T, B, D)),
    ('embeddings', (D, V)),
    ('labels', (T, B)),
    ('weights', (T, B)),
  ],
)
def test_refuses_swapped_axes(name, shape):
  hidden, embeddings, weights = make(np.float32)
  args = {
    'hidden': hidden,
    'embeddings': embeddings,
    'labels': all_labels(),
    'weights': weights,
  }
  args[name] = jnp.ones(shape, args[name].dtype)
  with pytest.raises(AssertionError):
    cross_entropy(**args)


def test_refuses_float_labels():
  hidden, embeddings, weights = make(np.float32)
  with pytest.raises(AssertionError):
    blocked_log_probs(hidden, embeddings, weights, block_size=4)


def test_refuses_an_empty_block():
  hidden, embeddings, _ = make(np.float32)
  with pytest.raises(
    ValueError, match='block_size must be at least 1. Got: 0.'
  ):
    blocked_log_probs(hidden, embeddings, all_labels(), block_size=0)
