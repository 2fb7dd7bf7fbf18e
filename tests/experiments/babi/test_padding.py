"""Tests experiments/babi/padding.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.babi.padding import skip_padding
from rmc_jax.models import MemN2N
from rmc_jax.models import QuestionAnswering
from rmc_jax.models.memn2n import Sizes
from rmc_jax.training import map_members

# Vocabulary, memory and sentence of four tasks. The bound is 3: slots
# 3 * 3 + 11 are fewer than 2 * 2 + 2 * 11.
SIZES = np.array([(5, 2, 4), (6, 11, 3), (7, 3, 2), (5, 2, 4)], np.int32)
B = 9


def make_network():
  def forward(batch, linear):
    model = MemN2N(*SIZES[:, :2].max(0), embedding_size=8, num_hops=2)
    return model(
      batch['story'],
      batch['question'],
      batch['time'],
      linear=linear,
      sizes=Sizes(*batch['sizes'][0]),
    )

  return hk.without_apply_rng(hk.transform(forward))


def make_batch(task):
  rng = np.random.default_rng(task)
  _, m, j = SIZES[:, :].max(0)
  vocabulary, memory, sentence = SIZES[task]
  story = np.zeros((B, m, j), np.int32)
  story[:, :memory, :sentence] = rng.integers(
    1, vocabulary, (B, memory, sentence)
  )
  question = np.zeros((B, j), np.int32)
  question[:, :sentence] = rng.integers(1, vocabulary, (B, sentence))
  time = np.zeros((B, m), np.int32)
  time[:, :memory] = np.arange(1, memory + 1)
  return {
    'story': story,
    'question': question,
    'time': time,
    'sizes': np.repeat(SIZES[task][None], B, axis=0),
  }


@pytest.mark.parametrize('linear', [False, True])
@pytest.mark.parametrize('at_once', [None, len(SIZES)])
def test_results_and_gradients_are_those_with_padding(linear, at_once):
  network = make_network()
  fast = skip_padding(network, SIZES)
  batches = jax.tree.map(
    lambda *leaves: np.stack(leaves), *map(make_batch, range(len(SIZES)))
  )
  params = network.init(jax.random.key(0), make_batch(1), False)

  def compute(network):
    def loss_fn(params, batch):
      logits, attention = network.apply(params, batch, linear)
      logits = jnp.where(jnp.isfinite(logits), logits, 0.0)
      return jnp.square(logits).sum(), (logits, attention)

    each = jax.value_and_grad(loss_fn, has_aux=True)
    return map_members(lambda batch: each(params, batch), at_once)(batches)

  expected, found = jax.tree.leaves(compute(network)), compute(fast)
  for one, other in zip(expected, jax.tree.leaves(found), strict=True):
    # Sums of float32 over arrays of another length.
    np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


def test_short_stories_are_computed_on_short_arrays():
  shapes = []

  def forward(batch, linear):
    del linear
    shapes.append(batch['story'].shape[1:])
    return jnp.zeros((B, 5)), jnp.zeros((B, 2, batch['story'].shape[1]))

  network = hk.without_apply_rng(hk.transform(forward))
  _, attention = skip_padding(network, SIZES).apply({}, make_batch(0), False)
  assert shapes == [(3, 4), (11, 3)]
  assert attention.shape == (B, 2, 11)


def test_tasks_of_one_length_are_not_changed():
  network = make_network()
  assert skip_padding(network, SIZES[1:2]) is network


def test_a_network_may_return_logits_alone():
  def forward(batch):
    vocabulary = int(SIZES[:, 0].max())
    model = QuestionAnswering(hk.LSTM(9), vocabulary, 8)
    sizes = Sizes(*batch['sizes'][0])
    return model(batch['story'], batch['question'], sizes)

  network = hk.without_apply_rng(hk.transform(forward))
  fast = skip_padding(network, SIZES)
  params = network.init(jax.random.key(0), make_batch(1))
  for task in range(len(SIZES)):
    batch = jax.tree.map(jnp.asarray, make_batch(task))
    # Sums of float32 over arrays of another length.
    np.testing.assert_allclose(
      fast.apply(params, batch), network.apply(params, batch), rtol=1e-5
    )
