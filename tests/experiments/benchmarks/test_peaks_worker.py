"""Tests experiments/benchmarks/workers/peaks_worker.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.benchmarks import counts
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.workers import peaks_worker

SIZE = Size(
  steps=1,
  batch=5,
  features=7,
  mem_slots=2,
  head_size=37,
  num_heads=3,
  mlp_layers=3,
  gate_style='memory',
  source='tests',
)


@pytest.fixture
def keep_precision():
  before = jax.config.jax_default_matmul_precision
  yield
  jax.config.update('jax_default_matmul_precision', before)


def arguments(size):
  rng = np.random.default_rng(0)

  def normal(*shape):
    return jnp.asarray(rng.standard_normal(shape), jnp.float32)

  products = counts.projection(size), counts.recurrence(size)
  return (
    normal(size.steps * size.batch, size.features),
    normal(size.batch * size.mem_slots, size.slot_width),
    *[[normal(p.size, p.width) for p in each] for each in products],
  )


def test_linears_are_the_products_of_a_step():
  run = jax.jit(lambda *arguments: peaks_worker.linears(SIZE.steps, *arguments))
  cost = run.lower(*arguments(SIZE)).compile().cost_analysis()
  operations = sum(phase.operations for phase in counts.phases(SIZE))
  operations -= 3 * 5 * counts.attention_operations(SIZE)
  # XLA also counts the few additions between them.
  assert 0.98 < operations / cost['flops'] <= 1.0


def test_linears_have_a_gradient_for_every_weight():
  _, memory, before, loop = given = arguments(SIZE)
  d_before, d_loop, d_memory = peaks_worker.linears(SIZE.steps, *given)
  for gradients, weights in ((d_before, before), (d_loop, loop)):
    for gradient, weight in zip(gradients, weights, strict=True):
      assert gradient.shape == weight.shape
  assert d_memory.shape == memory.shape


@pytest.mark.usefixtures('keep_precision')
@pytest.mark.parametrize(
  'more, fact',
  [
    ({'peak': 'product'}, {'operations': 2 * 11**3}),
    # 44 bytes read and written in each of 12 passes: 1056, no less than 1000.
    ({'peak': 'copy', 'bytes': 44}, {'bytes': 2 * 12 * 44}),
  ],
)
def test_peaks_count_the_work_of_a_step(monkeypatch, more, fact):
  monkeypatch.setattr(peaks_worker, '_CPU_ROWS', 11)
  monkeypatch.setattr(peaks_worker, '_MIN_MOVED', 1000)
  peak = peaks_worker.load({'precision': 'float32', **more})
  step, facts = peak.build('train')
  step()
  step()
  assert facts == fact
