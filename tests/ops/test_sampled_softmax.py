"""Tests rmc_jax/ops/sampled_softmax.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.ops.blocked_softmax import blocked_softmax_cross_entropy
from rmc_jax.ops.sampled_softmax import expected_count
from rmc_jax.ops.sampled_softmax import log_uniform_prob
from rmc_jax.ops.sampled_softmax import Sample
from rmc_jax.ops.sampled_softmax import sample_words
from rmc_jax.ops.sampled_softmax import sampled_softmax_cross_entropy
from tests.ops.largest_array import largest_array
from tests.reference import softmax as reference

B, T, D, V = 3, 5, 7, 11
# The same float64 numbers in another order.
EXACT = {'rtol': 1e-12, 'atol': 1e-12}


def make(dtype=np.float64, vocab_size=V):
  """Hidden [B, T, D], embeddings, bias and weights."""
  rng = np.random.default_rng(0)
  shapes = (B, T, D), (vocab_size, D), (vocab_size,), (B, T)
  return [jnp.asarray(rng.normal(size=s), dtype) for s in shapes]


def all_labels():
  labels = np.random.default_rng(1).permutation(B * T) % V
  return jnp.asarray(labels.reshape(B, T))


def many_samples(count, num_sampled, vocab_size=V):
  keys = jax.random.split(jax.random.key(2), count)
  draw = jax.vmap(lambda key: sample_words(key, num_sampled, vocab_size))
  return jax.jit(draw)(keys)


def test_log_uniform_probabilities_equal_the_reference():
  got = log_uniform_prob(jnp.arange(V), V)
  np.testing.assert_allclose(got, reference.log_uniform(V), rtol=1e-6)
  # By hand, log 2 / log 12; and, as rare as they are, words of a large one.
  np.testing.assert_allclose(got[0], 0.278943, rtol=1e-6)
  large = log_uniform_prob(jnp.arange(267_735), 267_735)
  # log(1 + 1 / 267,735) / log 267,736, of which float32 keeps 7 digits.
  np.testing.assert_allclose(large[-1], 2.988560e-07, rtol=1e-6)
  np.testing.assert_allclose(large.sum(dtype=jnp.float32), 1.0, rtol=1e-5)


def test_words_come_one_after_the_other_without_replacement():
  draws = 20_000
  first, second = many_samples(draws, 2).ids.T
  assert np.all(first != second)
  p = reference.log_uniform(V)
  after = np.array(
    [
      sum(p[u] * p[v] / (1 - p[u]) for u in range(V) if u != v)
      for v in range(V)
    ]
  )
  for words, probs in (first, p), (second, after):
    counts = np.bincount(words, minlength=V)
    chi_square = ((counts - draws * probs) ** 2 / (draws * probs)).sum()
    # Exceeded by one generator in a thousand: V - 1 = 10 degrees of freedom.
    assert chi_square < 29.59


@pytest.mark.parametrize('num_sampled', [1, 4, 10])
def test_each_word_is_sampled_as_often_as_expected(num_sampled):
  draws = 20_000
  sample = many_samples(draws, num_sampled)
  is_in = np.zeros((draws, V), bool)
  is_in[np.arange(draws)[:, None], sample.ids] = True
  counts = jax.vmap(lambda t: expected_count(jnp.arange(V), t, V))(
    sample.threshold
  )
  # Weighed by 1 / q, every word counts 1 on average, whatever the threshold.
  weighed = is_in / np.float64(counts)
  error = weighed.std(axis=0) / np.sqrt(draws)
  assert np.all(np.abs(weighed.mean(axis=0) - 1) < 5 * error)
  assert np.all(error < 0.1)


def test_words_differ_and_all_of_them_are_all():
  ids = np.asarray(many_samples(50, 7).ids)
  assert ids.shape == (50, 7)
  assert all(len(set(row)) == 7 for row in ids)
  assert len({tuple(row) for row in ids}) > 45
  sample = sample_words(jax.random.key(0), V, V)
  assert sorted(np.asarray(sample.ids)) == list(range(V))
  np.testing.assert_array_equal(
    expected_count(jnp.arange(V), sample.threshold, V), 1.0
  )


def test_sum_equals_the_reference():
  with jax.enable_x64(True):
    hidden, embeddings, bias, weights = make()
    labels = all_labels()
    sample = sample_words(jax.random.key(3), 4, V)
    # Some labels are hit by accident, and some are not.
    assert 0 < np.isin(labels, sample.ids).sum() < labels.size
    for b in bias, None:
      total, weight = sampled_softmax_cross_entropy(
        hidden, embeddings, labels, sample, weights, bias=b
      )
      wanted = reference.sampled_log_probs(
        hidden.reshape(B * T, D),
        np.asarray(embeddings),
        np.zeros(V) if b is None else np.asarray(b),
        np.ravel(labels),
        np.asarray(sample.ids),
        float(sample.threshold),
      )
      np.testing.assert_allclose(
        total, -(wanted * np.ravel(weights)).sum(), **EXACT
      )
      np.testing.assert_allclose(weight, weights.sum(), **EXACT)


def test_an_accidental_hit_is_as_if_it_were_not_there():
  with jax.enable_x64(True):
    hidden, embeddings, bias, _ = make()
    threshold = jnp.asarray(2.5)

    def loss(ids):
      sample = Sample(jnp.array(ids), threshold)
      return sampled_softmax_cross_entropy(
        hidden, embeddings, jnp.full((B, T), 6), sample, bias=bias
      )[0]

    np.testing.assert_allclose(loss([2, 6, 9]), loss([2, 9]), **EXACT)
    assert loss([6]) == 0  # Nothing but the label is left.
    assert loss([2, 8, 9]) > loss([2, 9]) + 0.1


def test_with_all_words_it_is_the_exact_loss():
  with jax.enable_x64(True):
    *args, weights = make()
    labels = all_labels()
    sample = sample_words(jax.random.key(4), V, V)

    def sampled(hidden, embeddings, bias):
      return sampled_softmax_cross_entropy(
        hidden, embeddings, labels, sample, weights, bias=bias
      )[0]

    def exact(hidden, embeddings, bias):
      return blocked_softmax_cross_entropy(
        hidden, embeddings, labels, weights, bias=bias, block_size=V
      )[0]

    got, wanted = (
      jax.value_and_grad(f, (0, 1, 2))(*args) for f in (sampled, exact)
    )
    for g, w in zip(*map(jax.tree.leaves, (got, wanted)), strict=True):
      np.testing.assert_allclose(g, w, **EXACT)


def test_more_words_bring_loss_and_gradient_closer_to_the_exact_ones():
  words = 101
  hidden, embeddings, _, _ = make(np.float32, words)
  # Labels as frequent as the sampler takes them to be.
  p = reference.log_uniform(words)
  labels = np.random.default_rng(1).choice(words, size=(B, T), p=p)
  labels = jnp.asarray(labels)
  exact, slope = jax.value_and_grad(
    lambda e: blocked_softmax_cross_entropy(
      hidden, e, labels, block_size=words
    )[0]
  )(embeddings)

  def off(num_sampled):
    """Relative errors of the means over many samples."""

    def one(key):
      sample = sample_words(key, num_sampled, words)
      return jax.value_and_grad(
        lambda e: sampled_softmax_cross_entropy(hidden, e, labels, sample)[0]
      )(embeddings)

    losses, slopes = jax.jit(jax.vmap(one))(
      jax.random.split(jax.random.key(5), 1000)
    )
    return np.array(
      [
        abs(losses.mean() - exact) / exact,
        np.linalg.norm(slopes.mean(axis=0) - slope) / np.linalg.norm(slope),
      ]
    )

  few, some, most = off(3), off(30), off(90)
  # The means of 1000 are themselves off by 0.02 of the gradient or less.
  assert np.all(some < 0.5 * few)
  assert np.all(most < 0.25 * some)


def test_masked_labels_may_be_anything_and_get_no_gradient():
  *args, _ = make(np.float32)
  labels = all_labels()
  mask = np.ones((B, T), bool)
  mask[1, 2:] = False
  sample = sample_words(jax.random.key(3), 4, V)

  @jax.jit
  def loss_and_gradient(labels):
    return jax.value_and_grad(
      lambda hidden, embeddings, bias: sampled_softmax_cross_entropy(
        hidden, embeddings, labels, sample, jnp.asarray(mask), bias=bias
      ),
      (0, 1, 2),
      has_aux=True,
    )(*args)

  got = loss_and_gradient(labels.at[1, 2:].set(jnp.array([V, V + 90, -100])))
  for g, w in zip(
    *map(jax.tree.leaves, (got, loss_and_gradient(labels))), strict=True
  ):
    np.testing.assert_array_equal(g, w)
  (_, weight), (d_hidden, *_) = got
  assert weight == B * T - 3
  np.testing.assert_array_equal(np.any(d_hidden != 0, axis=-1), mask)


@pytest.mark.parametrize('label', [V, -1])
def test_a_label_out_of_range_is_not_finite(label):
  hidden, embeddings, _, _ = make(np.float32)
  labels = all_labels().at[1, 4].set(label)
  sample = sample_words(jax.random.key(3), 4, V)
  total, _ = sampled_softmax_cross_entropy(hidden, embeddings, labels, sample)
  assert np.isnan(total)


def test_factors_are_narrow_and_sums_are_not():
  hidden, embeddings, bias, _ = make(np.float32)
  sample = sample_words(jax.random.key(3), 4, V)

  def loss(hidden, embeddings, **kwargs):
    return sampled_softmax_cross_entropy(
      hidden, embeddings, all_labels(), sample, bias=bias, **kwargs
    )[0]

  rounded = [
    x.astype(jnp.bfloat16).astype(x.dtype) for x in (hidden, embeddings)
  ]
  got = loss(hidden, embeddings, compute_dtype=jnp.bfloat16)
  assert got.dtype == jnp.float32
  # Products of rounded factors are exact in float32.
  np.testing.assert_allclose(got, loss(*rounded), rtol=1e-6)
  assert abs(got - loss(hidden, embeddings)) > 1e-3


def test_no_array_has_a_number_for_each_row_and_word():
  rows, width, words, sampled = 60, 3, 101, 8
  labels = jnp.zeros(rows, int)

  def loss(hidden, embeddings, bias, key):
    sample = sample_words(key, sampled, words)
    return sampled_softmax_cross_entropy(
      hidden, embeddings, labels, sample, bias=bias
    )[0]

  args = (
    jnp.ones((rows, width)),
    jnp.ones((words, width)),
    jnp.ones(words),
    jax.random.key(0),
  )
  for function in loss, jax.grad(loss, (0, 1, 2)):
    # The label's own logit beside those of the sampled words.
    assert largest_array(function, *args) == rows * (1 + sampled)


@pytest.mark.parametrize('num_sampled', [0, V + 1])
def test_a_sample_that_cannot_be_is_refused(num_sampled):
  with pytest.raises(ValueError, match=f'size 11 at most.*Got: {num_sampled}.'):
    sample_words(jax.random.key(0), num_sampled, V)


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
    sampled_softmax_cross_entropy(
      **args, sample=sample_words(jax.random.key(0), 4, V)
    )
