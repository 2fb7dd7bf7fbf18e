"""Tests rmc_jax/models/memn2n_language.py."""

import haiku as hk
import jax
import jax.numpy as jnp
from jax.test_util import check_grads
import numpy as np
import pytest

from rmc_jax.models import MemN2NLanguageModel
from tests.reference import memn2n_language as reference

# Distinct sizes: B examples, N words in memory, V words, d units, K hops.
B, N, V, D, K = 2, 5, 11, 7, 3
NAME = 'memn2n_language_model'
WORDS = np.array([[4, 9, 1, 4, 0], [10, 2, 3, 8, 2]], np.int32)


def transform(**arguments):
  arguments = {
    'vocabulary_size': V,
    'memory_size': N,
    'embedding_size': D,
    'num_hops': K,
    'num_linear': 4,
  } | arguments
  network = hk.without_apply_rng(
    hk.transform(lambda words: MemN2NLanguageModel(**arguments)(words))
  )
  return hk.Transformed(jax.jit(network.init), jax.jit(network.apply))


def make(**arguments):
  network = transform(**arguments)
  params = network.init(jax.random.key(3), WORDS)
  # Larger than at the start, so that no softmax is nearly uniform.
  return network, jax.tree.map(lambda x: 12 * x, params)


@pytest.mark.parametrize('num_linear', [0, 4, D])
def test_agrees_with_the_reference(num_linear):
  network, params = make(num_linear=num_linear)
  logits, attention = network.apply(params, WORDS)
  assert logits.shape == (B, V)
  assert attention.shape == (B, K, N)
  assert attention.max() > 2 / N
  for i in range(B):
    expected = reference.next_word(
      params[NAME], WORDS[i], num_hops=K, num_linear=num_linear
    )
    # float32 against float64, three hops of sums of at most 12 products.
    np.testing.assert_allclose(logits[i], expected[0], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(attention[i], expected[1], rtol=2e-5)


def test_words_may_be_swapped_only_without_time_vectors():
  network, params = make()
  swapped = WORDS.copy()
  swapped[:, [1, 2]] = WORDS[:, [2, 1]]
  before, _ = network.apply(params, WORDS)
  after, _ = network.apply(params, swapped)
  assert np.abs(before - after).max() > 1e-3
  params[NAME] |= {
    name: jnp.zeros((N, D)) for name in ('input_time', 'output_time')
  }
  before, attention = network.apply(params, WORDS)
  after, other = network.apply(params, swapped)
  np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(attention[..., 1], other[..., 2], rtol=1e-5)


def test_one_hop_has_the_closed_form():
  network, params = make(num_hops=1, num_linear=D)
  p = {name: np.asarray(value) for name, value in params[NAME].items()}
  u = np.full(D, 0.1)
  m = p['input'][WORDS] + p['input_time'][None]  # [B, N, d]
  c = p['output'][WORDS] + p['output_time'][None]
  scores = m @ u  # [B, N]
  weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
  read = np.einsum('bn,bnd->bd', weights, c)
  expected = (u @ p['hop'].T + read) @ p['next_word'].T
  np.testing.assert_allclose(
    network.apply(params, WORDS)[0], expected, rtol=1e-5, atol=1e-5
  )


def test_last_position_is_that_of_the_newest_word():
  network, params = make()
  # Only the last time vector matches the query, and overwhelmingly.
  time = jnp.zeros((N, D)).at[-1].set(1000.0)
  params[NAME] |= {'input_time': time, 'hop': jnp.zeros((D, D))}
  _, attention = network.apply(params, WORDS)
  np.testing.assert_allclose(attention[:, 0, -1], 1.0, rtol=1e-6)


def test_gradients_agree_with_finite_differences():
  with jax.enable_x64(True):
    network, params = make()
    params = jax.tree.map(lambda x: x.astype(jnp.float64), params)
    weights = jax.random.normal(jax.random.key(7), (B, V))

    def loss(params):
      logits, _ = network.apply(params, WORDS)
      return (jax.nn.log_softmax(logits) * weights).sum()

    # In float64, so that only the differences limit the agreement.
    check_grads(loss, (params,), order=1, modes=['rev'], rtol=1e-5)


def test_parameters_of_the_paper():
  # Penn Treebank: 10,000 words, 150 units, 100 words in memory.
  network = hk.transform(lambda words: MemN2NLanguageModel(10_000)(words))
  words = jnp.zeros((1, 100), int)
  params = jax.jit(network.init)(jax.random.key(0), words)[NAME]
  assert {name: value.shape for name, value in params.items()} == {
    'input': (10_000, 150),
    'output': (10_000, 150),
    'next_word': (10_000, 150),
    'input_time': (100, 150),
    'output_time': (100, 150),
    'hop': (150, 150),
  }
  for value in params.values():
    # Five standard errors of the deviation of the smallest, of 15,000.
    np.testing.assert_allclose(value.std(), 0.05, rtol=5 / (2 * 15_000) ** 0.5)


@pytest.mark.parametrize(
  'arguments, message',
  [
    ({'num_hops': 0}, 'num_hops must be at least 1. Got: 0'),
    ({'memory_size': 0}, 'memory_size must be at least 1. Got: 0'),
    ({'num_linear': 8}, 'num_linear must be one of 0.* Got: 8'),
    ({'memory_size': 6}, r'words must be \[B, 6\].*Got shape: \(2, 5\)'),
  ],
)
def test_invalid_arguments_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    transform(**arguments).init(jax.random.key(0), WORDS)
