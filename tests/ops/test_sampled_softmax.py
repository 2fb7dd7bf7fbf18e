"""Tests rmc_jax/ops/sampled_softmax.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.ops.blocked_softmax import blocked_log_probs
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
  """Returns hidden [B, T, D], embeddings and weights."""
  rng = np.random.default_rng(0)
  shapes = (B, T, D), (vocab_size, D), (B, T)
  return [jnp.asarray(rng.normal(size=s), dtype) for s in shapes]


def all_labels():
  labels = np.random.default_rng(1).permutation(B * T) % V
  return jnp.asarray(labels.reshape(B, T))


def exact_loss(hidden, embeddings, labels, weights=1.0):
  log_probs = blocked_log_probs(
    hidden, embeddings, labels, block_size=len(embeddings)
  )
  return -(weights * log_probs).sum()


def many_samples(count, num_sampled, vocab_size=V):
  keys = jax.random.split(jax.random.key(2), count)
  draw = jax.vmap(lambda key: sample_words(key, num_sampled, vocab_size))
  return jax.jit(draw)(keys)


def test_log_uniform_probabilities_equal_the_reference():
  got = log_uniform_prob(jnp.arange(V), V)
  np.testing.assert_allclose(got, reference.log_uniform(V), rtol=1e-6)
  # log 2 / log 12 by hand, and the rarest word of a large vocabulary.
  np.testing.assert_allclose(got[0], 0.278943, rtol=1e-6)
  large = log_uniform_prob(jnp.arange(267_735), 267_735)
  # log(1 + 1 / 267,735) / log 267,736, of which float32 keeps 7 digits.
  np.testing.assert_allclose(large[-1], 2.988560e-07, rtol=1e-6)
  np.testing.assert_allclose(large.sum(dtype=jnp.float32), 1.0, rtol=1e-5)


def test_words_are_drawn_in_succession_without_replacement():
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
def test_expected_count_is_the_sampling_frequency(num_sampled):
  draws = 20_000
  sample = many_samples(draws, num_sampled)
  is_in = np.zeros((draws, V), bool)
  is_in[np.arange(draws)[:, None], sample.ids] = True
  counts = jax.vmap(lambda t: expected_count(jnp.arange(V), t, V))(
    sample.threshold
  )
  # Weighted by 1 / q, every word counts 1 on average.
  weighted = is_in / np.float64(counts)
  error = weighted.std(axis=0) / np.sqrt(draws)
  assert np.all(np.abs(weighted.mean(axis=0) - 1) < 5 * error)
  assert np.all(error < 0.1)


def test_words_are_distinct_and_a_full_sample_has_all():
  ids = np.asarray(many_samples(50, 7).ids)
  assert ids.shape == (50, 7)
  assert all(len(set(row)) == 7 for row in ids)
  assert len({tuple(row) for row in ids}) > 45
  sample = sample_words(jax.random.key(0), V, V)
  assert sorted(np.asarray(sample.ids)) == list(range(V))
  np.testing.assert_array_equal(
    expected_count(jnp.arange(V), sample.threshold, V), 1.0
  )


def test_loss_equals_the_reference():
  with jax.enable_x64(True):
    hidden, embeddings, weights = make()
    labels = all_labels()
    sample = sample_words(jax.random.key(3), 4, V)
    # Some labels are accidental hits, and some are not.
    assert 0 < np.isin(labels, sample.ids).sum() < labels.size
    total, weight = sampled_softmax_cross_entropy(
      hidden, embeddings, labels, sample, weights
    )
    wanted = reference.sampled_log_probs(
      hidden.reshape(B * T, D),
      np.asarray(embeddings),
      np.ravel(labels),
      np.asarray(sample.ids),
      float(sample.threshold),
    )
    np.testing.assert_allclose(
      total, -(wanted * np.ravel(weights)).sum(), **EXACT
    )
    np.testing.assert_allclose(weight, weights.sum(), **EXACT)


def test_accidental_hits_are_removed():
  with jax.enable_x64(True):
    hidden, embeddings, _ = make()
    threshold = jnp.asarray(2.5)

    def loss(ids):
      sample = Sample(jnp.array(ids), threshold)
      return sampled_softmax_cross_entropy(
        hidden, embeddings, jnp.full((B, T), 6), sample
      )[0]

    np.testing.assert_allclose(loss([2, 6, 9]), loss([2, 9]), **EXACT)
    assert loss([6]) == 0  # Nothing but the label is left.
    assert loss([2, 8, 9]) > loss([2, 9]) + 0.1


def test_sample_of_all_words_gives_the_exact_loss():
  with jax.enable_x64(True):
    *args, weights = make()
    labels = all_labels()
    sample = sample_words(jax.random.key(4), V, V)

    def sampled(hidden, embeddings):
      return sampled_softmax_cross_entropy(
        hidden, embeddings, labels, sample, weights
      )[0]

    def exact(hidden, embeddings):
      return exact_loss(hidden, embeddings, labels, weights)

    got, wanted = (
      jax.value_and_grad(f, (0, 1))(*args) for f in (sampled, exact)
    )
    for g, w in zip(*map(jax.tree.leaves, (got, wanted)), strict=True):
      np.testing.assert_allclose(g, w, **EXACT)


def test_larger_samples_approach_the_exact_loss_and_gradient():
  words = 101
  hidden, embeddings, _ = make(np.float32, words)
  # The sampler assumes labels of these frequencies.
  p = reference.log_uniform(words)
  labels = np.random.default_rng(1).choice(words, size=(B, T), p=p)
  labels = jnp.asarray(labels)
  exact, slope = jax.value_and_grad(
    lambda embeddings: exact_loss(hidden, embeddings, labels)
  )(embeddings)

  def off(num_sampled):
    """Returns relative errors of the means over many samples."""

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
  # Means of 1000 samples are within 0.02 of the gradient.
  assert np.all(some < 0.5 * few)
  assert np.all(most < 0.25 * some)


def test_masked_labels_are_ignored():
  *args, _ = make(np.float32)
  labels = all_labels()
  mask = np.ones((B, T), bool)
  mask[1, 2:] = False
  sample = sample_words(jax.random.key(3), 4, V)

  @jax.jit
  def loss_and_gradient(labels):
    return jax.value_and_grad(
      lambda hidden, embeddings: sampled_softmax_cross_entropy(
        hidden, embeddings, labels, sample, jnp.asarray(mask)
      ),
      (0, 1),
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
def test_label_out_of_range_gives_nan(label):
  hidden, embeddings, _ = make(np.float32)
  labels = all_labels().at[1, 4].set(label)
  sample = sample_words(jax.random.key(3), 4, V)
  total, _ = sampled_softmax_cross_entropy(hidden, embeddings, labels, sample)
  assert np.isnan(total)


def test_bfloat16_weights_are_summed_in_float32():
  hidden, embeddings, _ = make(np.float32)
  sample = sample_words(jax.random.key(3), 4, V)

  def loss(hidden, embeddings):
    return sampled_softmax_cross_entropy(
      hidden, embeddings, all_labels(), sample
    )[0]

  narrow = [x.astype(jnp.bfloat16) for x in (hidden, embeddings)]
  got = loss(*narrow)
  assert got.dtype == jnp.float32
  # Products of bfloat16 numbers are exact in float32.
  np.testing.assert_allclose(
    got, loss(*(x.astype(jnp.float32) for x in narrow)), rtol=1e-6
  )
  assert abs(got - loss(hidden, embeddings)) > 1e-3


def test_no_array_holds_all_rows_by_all_words():
  rows, width, words, sampled = 60, 3, 101, 8
  labels = jnp.zeros(rows, int)

  def loss(hidden, embeddings, key):
    sample = sample_words(key, sampled, words)
    return sampled_softmax_cross_entropy(hidden, embeddings, labels, sample)[0]

  args = (
    jnp.ones((rows, width)),
    jnp.ones((words, width)),
    jax.random.key(0),
  )
  for function in loss, jax.grad(loss, (0, 1)):
    # The logits of the label and of the sampled words.
    assert largest_array(function, *args) == rows * (1 + sampled)


@pytest.mark.parametrize('num_sampled', [0, V + 1])
def test_refuses_an_empty_or_too_large_sample(num_sampled):
  with pytest.raises(ValueError, match=f'in 1..11, .*Got: {num_sampled}.'):
    sample_words(jax.random.key(0), num_sampled, V)


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
    sampled_softmax_cross_entropy(
      **args, sample=sample_words(jax.random.key(0), 4, V)
    )
