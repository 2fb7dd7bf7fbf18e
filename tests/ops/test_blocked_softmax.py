"""Tests rmc_jax/ops/blocked_softmax.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import losses
from rmc_jax.ops.blocked_softmax import blocked_log_probs
from rmc_jax.ops.blocked_softmax import blocked_softmax_cross_entropy
from tests.ops.largest_array import largest_array
from tests.reference import softmax as reference

B, T, D, V = 3, 5, 7, 11
# One word, several and a rest, all but one, all, more than all.
BLOCK_SIZES = [1, 4, 10, 11, 50]
# The same float64 numbers in another order.
EXACT = {'rtol': 1e-12, 'atol': 1e-12}
# float32 sums of D = 7 products and V = 11 probabilities, of order 1.
SINGLE = {'rtol': 1e-5, 'atol': 1e-5}


def make(dtype=np.float64):
  """Hidden [B, T, D], embeddings, bias and weights."""
  rng = np.random.default_rng(0)
  shapes = (B, T, D), (V, D), (V,), (B, T)
  return [jnp.asarray(rng.normal(size=s), dtype) for s in shapes]


def all_labels():
  """Every word, the first and last of each block among them."""
  labels = np.random.default_rng(1).permutation(B * T) % V
  return jnp.asarray(labels.reshape(B, T))


def expected(hidden, embeddings, bias, weights, labels):
  """The reference's sum and gradients, which know no B."""
  hidden, embeddings, bias, weights = map(
    np.float64, (hidden, embeddings, bias, weights)
  )
  total, slopes = reference.cross_entropy(
    hidden.reshape(B * T, D),
    embeddings,
    bias,
    np.ravel(labels),
    weights.ravel(),
  )
  slopes['hidden'] = slopes['hidden'].reshape(B, T, D)
  return total, list(slopes.values())


def summed(labels, weights=None, **kwargs):
  """The loss as a function of hidden, embeddings and bias."""
  return lambda hidden, embeddings, bias=None: blocked_softmax_cross_entropy(
    hidden, embeddings, labels, weights, bias=bias, **kwargs
  )[0]


@pytest.mark.parametrize('block_size', BLOCK_SIZES)
def test_sum_and_gradients_equal_the_reference(block_size):
  with jax.enable_x64(True):
    *args, weights = make()
    labels = all_labels()
    total, gradients = jax.value_and_grad(
      summed(labels, weights, block_size=block_size), (0, 1, 2)
    )(*args)
    wanted, slopes = expected(*args, weights, labels)
    np.testing.assert_allclose(total, wanted, **EXACT)
    for gradient, slope in zip(gradients, slopes, strict=True):
      np.testing.assert_allclose(gradient, slope, **EXACT)


def test_without_a_bias_it_is_zero():
  with jax.enable_x64(True):
    hidden, embeddings, bias, weights = make()
    labels = all_labels()
    total, gradients = jax.value_and_grad(
      summed(labels, weights, block_size=4), (0, 1)
    )(hidden, embeddings)
    wanted, slopes = expected(hidden, embeddings, 0 * bias, weights, labels)
    np.testing.assert_allclose(total, wanted, **EXACT)
    for gradient, slope in zip(gradients, slopes, strict=False):
      np.testing.assert_allclose(gradient, slope, **EXACT)


def test_float32_is_as_good_as_the_plain_loss():
  hidden, embeddings, bias, weights = make(np.float32)
  labels = all_labels()

  def plain(hidden, embeddings, bias):
    logits = hidden @ embeddings.T + jnp.broadcast_to(bias, (B, T, V))
    return losses.softmax_cross_entropy(logits, labels, weights)[0]

  got = jax.value_and_grad(summed(labels, weights, block_size=4), (0, 1, 2))
  wanted = jax.value_and_grad(plain, (0, 1, 2))
  for g, w in zip(
    jax.tree.leaves(got(hidden, embeddings, bias)),
    jax.tree.leaves(wanted(hidden, embeddings, bias)),
    strict=True,
  ):
    assert g.dtype == jnp.float32
    np.testing.assert_allclose(g, w, **SINGLE)


def test_log_probs_are_those_of_each_position():
  hidden, embeddings, bias, _ = make(np.float32)
  labels = all_labels()
  got = blocked_log_probs(hidden, embeddings, labels, block_size=4, bias=bias)
  logits = np.float64(hidden) @ np.float64(embeddings).T + np.float64(bias)
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
  # The largest has all of the probability.
  assert got == logits[0, V - 1] - logits[0, 3]
  np.testing.assert_array_equal(gradient[0], np.eye(V)[V - 1] - np.eye(V)[3])


def test_a_large_offset_of_all_logits_costs_no_precision():
  bias = jnp.arange(V, dtype=jnp.float32)

  def log_probs(bias):
    return blocked_log_probs(
      jnp.zeros((V, D)),
      jnp.zeros((V, D)),
      jnp.arange(V),
      block_size=4,
      bias=bias,
    )

  # Integers below 2^24, which float32 holds.
  np.testing.assert_array_equal(log_probs(bias + 2**20), log_probs(bias))


@pytest.mark.parametrize('forbidden', [slice(0, 4), slice(4, 8), slice(8, V)])
def test_a_bias_of_minus_infinity_forbids_a_block_of_words(forbidden):
  with jax.enable_x64(True):
    hidden, embeddings, bias, weights = make()
    allowed = np.ones(V, bool)
    allowed[forbidden] = False
    old = np.flatnonzero(allowed)
    labels = np.random.default_rng(2).integers(0, len(old), size=(B, T))
    total, gradients = jax.value_and_grad(
      summed(jnp.asarray(old[labels]), weights, block_size=4), (0, 1, 2)
    )(hidden, embeddings, jnp.where(allowed, bias, -jnp.inf))
    wanted, slopes = expected(
      hidden, embeddings[old], bias[old], weights, labels
    )
    np.testing.assert_allclose(total, wanted, **EXACT)
    np.testing.assert_allclose(gradients[0], slopes[0], **EXACT)
    np.testing.assert_allclose(gradients[1][old], slopes[1], **EXACT)
    np.testing.assert_array_equal(gradients[1][forbidden], 0.0)


def test_masked_labels_may_be_anything_and_get_no_gradient():
  with jax.enable_x64(True):
    *args, _ = make()
    labels = all_labels()
    mask = np.ones((B, T), bool)
    mask[1, 2:] = False
    padded = jnp.asarray(np.where(mask, labels, [[V], [V + 90], [-1]]))
    padded = padded.at[1, 3].set(-1)
    wanted, slopes = expected(*args, mask, labels)
    (total, weight), gradients = jax.value_and_grad(
      lambda *args: blocked_softmax_cross_entropy(
        *args[:2], padded, jnp.asarray(mask), block_size=4, bias=args[2]
      ),
      (0, 1, 2),
      has_aux=True,
    )(*args)
    np.testing.assert_allclose(total, wanted, **EXACT)
    assert weight == B * T - 3
    for gradient, slope in zip(gradients, slopes, strict=True):
      np.testing.assert_allclose(gradient, slope, **EXACT)


@pytest.mark.parametrize('label', [V, V + 3, -1])
@pytest.mark.parametrize('block_size', [4, V])
def test_a_label_out_of_range_is_not_finite(label, block_size):
  hidden, embeddings, _, _ = make(np.float32)
  labels = all_labels().at[1, 4].set(label)
  got = blocked_log_probs(hidden, embeddings, labels, block_size=block_size)
  assert np.argwhere(np.isnan(got)).tolist() == [[1, 4]]
  assert np.isnan(summed(labels, block_size=block_size)(hidden, embeddings))


@pytest.mark.parametrize('mapped', [jax.vmap, jax.pmap])
def test_each_example_of_a_map_is_on_its_own(mapped):
  hidden, embeddings, bias, weights = make(np.float32)

  @jax.jit
  def loss_and_gradient(*row):
    return jax.value_and_grad(
      lambda hidden, labels, weights: blocked_softmax_cross_entropy(
        hidden, embeddings, labels, weights, block_size=4, bias=bias
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


def test_no_array_has_a_number_for_each_row_and_word():
  rows, width, words, block = 60, 3, 101, 8
  hidden = jnp.ones((rows, width))
  embeddings, bias = jnp.ones((words, width)), jnp.ones(words)
  labels = jnp.zeros(rows, int)
  blocked = summed(labels, block_size=block)

  def plain(hidden, embeddings, bias):
    logits = hidden @ embeddings.T + bias[None]
    return losses.softmax_cross_entropy(logits, labels)[0]

  for loss, largest in (blocked, rows * block), (plain, rows * words):
    for function in loss, jax.grad(loss, (0, 1, 2)):
      assert largest_array(function, hidden, embeddings, bias) == largest


def test_compiled_memory_is_that_of_a_block():
  rows, width, words, block = 64, 3, 4001, 100
  args = [
    jax.ShapeDtypeStruct(shape, jnp.float32)
    for shape in ((rows, width), (words, width), (words,))
  ]
  loss = summed(jnp.zeros(rows, int), block_size=block)
  for function in loss, jax.grad(loss, (0, 1, 2)):
    compiled = jax.jit(function).lower(*args).compile()
    # A few times R * C numbers, where V is 40 times C.
    assert compiled.memory_analysis().temp_size_in_bytes < 4 * (
      4 * rows * block + 2 * words * width
    )


def test_factors_are_narrow_and_sums_are_not():
  *args, weights = make(np.float32)
  labels = all_labels()
  total, gradients = jax.value_and_grad(
    summed(labels, weights, block_size=4, compute_dtype=jnp.bfloat16),
    (0, 1, 2),
  )(*args)
  rounded = [x.astype(jnp.bfloat16) for x in args[:2]]
  wanted, slopes = expected(*rounded, args[2], weights, labels)
  # Exact products of rounded factors, and all but the products in float32.
  assert total.dtype == jnp.float32
  np.testing.assert_allclose(total, wanted, **SINGLE)
  for gradient, slope in zip(gradients, slopes, strict=True):
    assert gradient.dtype == jnp.float32
    # d logits are a factor too, of 8 bits: B * T = 15 or V = 11 terms.
    np.testing.assert_allclose(gradient, slope, atol=2**-8 * 4)
  # The bias meets no factor.
  np.testing.assert_allclose(gradients[2], slopes[2], **SINGLE)


def test_gradients_have_the_dtype_of_what_they_are_for():
  hidden, embeddings, bias, _ = make(np.float32)
  hidden, embeddings = (x.astype(jnp.bfloat16) for x in (hidden, embeddings))
  total, gradients = jax.value_and_grad(
    summed(all_labels(), block_size=4), (0, 1, 2)
  )(hidden, embeddings, bias)
  assert total.dtype == jnp.float32
  assert [g.dtype for g in gradients] == [jnp.bfloat16] * 2 + [jnp.float32]


@pytest.mark.parametrize(
  'name, shape',
  [
    ('hidden', (T, B, D)),
    ('embeddings', (D, V)),
    ('labels', (T, B)),
    ('weights', (T, B)),
    ('bias', (D,)),
  ],
)
def test_swapped_axes_are_refused(name, shape):
  hidden, embeddings, bias, weights = make(np.float32)
  args = {
    'hidden': hidden,
    'embeddings': embeddings,
    'labels': all_labels(),
    'weights': weights,
    'bias': bias,
  }
  args[name] = jnp.ones(shape, args[name].dtype)
  with pytest.raises(AssertionError):
    blocked_softmax_cross_entropy(**args, block_size=4)


def test_float_labels_are_refused():
  hidden, embeddings, _, weights = make(np.float32)
  with pytest.raises(AssertionError):
    blocked_log_probs(hidden, embeddings, weights, block_size=4)


def test_an_empty_block_is_refused():
  hidden, embeddings, _, _ = make(np.float32)
  with pytest.raises(ValueError, match='block_size must be >= 1. Got: 0.'):
    blocked_log_probs(hidden, embeddings, all_labels(), block_size=0)
