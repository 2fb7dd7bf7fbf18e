"""Tests experiments/benchmarks/babi.py and its workers."""

import argparse

import numpy as np
import pytest

from experiments.benchmarks import babi
from experiments.benchmarks import harness
from experiments.benchmarks.workers import training_worker
from tests.reference import memn2n

TASKS = ((9, 2, 6), (7, 5, 3))  # V, M and J
RESTARTS = 6


def test_stories_have_the_sizes_of_their_tasks():
  arrays = babi.make_arrays(TASKS)
  assert arrays['story'].shape == (2, 900, 5, 6)
  assert arrays['weights'].shape == (4, 9 + 5, 20)
  for g, (v, m, j) in enumerate(TASKS):
    story = arrays['story'][g]
    assert story.max() == v - 1
    assert not story[:, m:].any()
    assert not story[:, :, j:].any()
    np.testing.assert_array_equal(
      (story > 0).any(-1).sum(-1), arrays['length'][g]
    )


def test_members_train_on_the_loss_of_the_reference(tmp_path):
  arrays = babi.make_arrays(TASKS)
  np.savez(path := tmp_path / 'stories.npz', **arrays)
  program = training_worker.load(
    {'program': 'babi', 'arrays': str(path), 'restarts': RESTARTS}
  )
  step, facts = program.build('train')
  step()
  assert facts == {'items': 32 * 2 * RESTARTS, 'batches': 1}
  results = program.results()
  assert results['gradients'].shape == (2, 4, 9 + 5, 20)
  assert not results['gradients'][1, :, 7:9].any()  # No symbols of the task.
  losses = [reference_loss(arrays, g, *sizes) for g, sizes in enumerate(TASKS)]
  # Sums of 32 losses in float32.
  np.testing.assert_allclose(results['loss'], losses, rtol=1e-5)


def reference_loss(arrays, g, v, m, j):
  """Returns the loss of the first 32 questions, without padding."""
  rows = [*range(v), *range(9, 9 + m)]
  tables = {
    f'embedding_{k}': table[rows] for k, table in enumerate(arrays['weights'])
  }
  total = 0.0
  for n in range(32):
    length = arrays['length'][g, n]
    logits, _ = memn2n.answer(
      tables,
      arrays['story'][g, n, :m, :j],
      arrays['question'][g, n, :j],
      [i + 1 if i < length else 0 for i in range(m)],
      vocabulary=v,
      encoding='position',
      temporal=True,
      tying='adjacent',
      num_hops=3,
      num_relu=0,
      linear=False,
    )
    total -= np.log(memn2n.softmax(logits)[arrays['answer'][g, n]])
  return total


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.skipif(
  not (harness.benchmark_home() / 'torch/bin/python').exists(),
  reason='run launch/benchmark.sh babi first',
)
def test_port_to_torch_agrees(monkeypatch):
  monkeypatch.setitem(babi.SIZES, 'small', (TASKS, RESTARTS))
  options = argparse.Namespace(
    device='cpu', trials=1, trial_seconds=0.0, limit=120.0
  )
  measured = babi.measure('small', options)
  for name, entry in measured['implementations'].items():
    assert 'left_out' not in entry, (name, entry['left_out'])
    # A few roundings of sums of a hundred products.
    assert max(entry['difference'].values()) < 2e-5, name
  assert 'questions/s' in str(babi.table('small', measured).columns[1].header)
