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

# Vocabulary, memory and sentence of four tasks. Stories are cut to 2, 4 or 13
# slots.
SIZES = np.array([(5, 2, 4), (6, 13, 3), (7, 3, 2), (5, 6, 4)], np.int32)
MEMORY = 13
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
    'supporting': np.zeros_like(time),
    'sizes': np.repeat(SIZES[task][None], B, axis=0),
  }


@pytest.mark.parametrize('linear', [False, True])
@pytest.mark.parametrize('at_once', [None, len(SIZES)])
@pytest.mark.parametrize('split', [False, True])
def test_results_and_gradients_are_those_with_padding(linear, at_once, split):
  network = make_network()
  fast = skip_padding(network, SIZES, split)
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


def slots_of_parts(lengths, split):
  """Returns what a network computed on: slots of each question's story."""

  def forward(batch):
    return jnp.full(len(batch['story']), batch['story'].shape[1])

  network = hk.without_apply_rng(hk.transform(forward))
  story = np.zeros((len(lengths), MEMORY, 3), np.int32)
  for b, length in enumerate(lengths):
    story[b, :length, 1] = 4
  batch = {'story': story, 'time': story[..., 0], 'supporting': story[..., 1]}
  return skip_padding(network, SIZES, split).apply({}, batch).tolist()


@pytest.mark.parametrize(
  'lengths, slots',
  [
    ([1, 2, 0, 1, 2, 2, 2, 13, 9], [2] * 7 + [13] * 2),
    ([1, 2, 2, 2, 2, 2, 3, 4, 4], [4] * 9),
    ([1, 2, 2, 2, 2, 2, 2, 4, 4], [2] * 7 + [4] * 2),
    ([5, 2, 2, 2, 2, 2, 2, 2, 1], [13] * 7 + [2] * 2),  # not sorted
    ([0, 0, 0], [2] * 3),
  ],
)
def test_each_part_is_cut_to_its_longest_story(lengths, slots):
  assert slots_of_parts(lengths, split=True) == slots


def test_a_batch_is_cut_to_its_longest_story():
  assert slots_of_parts([1, 2, 1, 2, 3], split=False) == [4] * 5


def test_on_an_accelerator_the_network_stays(monkeypatch):
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  network = make_network()
  assert skip_padding(network, SIZES) is network


def test_a_network_may_return_logits_alone():
  def forward(batch):
    vocabulary = int(SIZES[:, 0].max())
    model = QuestionAnswering(hk.LSTM(9), vocabulary, 8)
    sizes = Sizes(*batch['sizes'][0])
    return model(batch['story'], batch['question'], sizes)

  network = hk.without_apply_rng(hk.transform(forward))
  fast = skip_padding(network, SIZES, split=False)
  params = network.init(jax.random.key(0), make_batch(1))
  for task in range(len(SIZES)):
    batch = jax.tree.map(jnp.asarray, make_batch(task))
    # Sums of float32 over arrays of another length.
    np.testing.assert_allclose(
      fast.apply(params, batch), network.apply(params, batch), rtol=1e-5
    )
