"""Tests experiments/benchmarks/roofline.py."""

import dataclasses
import json

import pytest
from rich.console import Console

from experiments.benchmarks import counts
from experiments.benchmarks import roofline
from experiments.benchmarks.sizes import Size

SIZE = Size(
  steps=3,
  batch=5,
  features=7,
  mem_slots=2,
  head_size=11,
  num_heads=13,
  source='tests',
)


def test_bound_reads_weights_at_their_own_rate():
  phase = counts.Phase(
    'loop', operations=600, bytes=70, weight_bytes=11, passes=3
  )
  operations, moved = roofline.bound(
    phase, roofline.Rates(product=200, copy=10, weights=33)
  )
  assert operations == pytest.approx(3)
  assert moved == pytest.approx(7 + 1)


def measured():
  """Two trials at 1 operation and 1 byte a ns, the second half as fast."""
  product, copied = {'operations': 10**9}, {'bytes': 10**6}
  phases = counts.phases(SIZE)
  bound = sum(max(p.operations, p.all_bytes) for p in phases) / 1e9
  found = {
    'rmc_jax': ({}, 4 * bound, 4 * bound),
    'product': (product, 1.0, 2.0),
    'copy': (copied, 1e-3, 2e-3),
    'weights': (copied, 1e-3, 2e-3),
    'linears': (product, 1.0, 3.0),
  }
  return {
    'size': dataclasses.asdict(SIZE),
    'itemsize': 4,
    'idle_share': 0.0,
    'implementations': {
      name: {
        'build': {'train': facts},
        # The median of three steps, not their mean.
        'seconds': {'train': [[s, s, 9 * s] for s in trials]},
      }
      for name, (facts, *trials) in found.items()
    },
  }


def test_share_is_that_of_each_trial(capsys):
  Console(width=100).print(roofline.table('tests', measured()))
  text = capsys.readouterr().out
  # A quarter in the first trial, a half in the second.
  assert 'Share: 38% (25% to 50%)' in text
  assert 'Linears alone: 2000.0 (1000.0 to 3000.0) ms' in text
  for phase in counts.phases(SIZE):
    assert phase.name in text


@pytest.mark.slow
def test_everything_is_measured_in_one_run(monkeypatch, tmp_path, capsys):
  # A pass over less memory is sooner done.
  monkeypatch.setattr(roofline, '_COPIED', 1 << 20)
  monkeypatch.setattr(roofline, 'SIZES', {'tiny': SIZE})
  output = tmp_path / 'results.json'
  roofline.main(
    [
      '--sizes=tiny',
      '--trials=2',
      '--trial_seconds=0.01',
      '--device=cpu',
      f'--output={output}',
    ]
  )
  results = json.loads(output.read_text())
  entries = results['sizes']['tiny']['implementations']
  assert list(entries) == ['rmc_jax', 'product', 'copy', 'weights', 'linears']
  assert {len(entry['seconds']['train']) for entry in entries.values()} == {2}
  assert 'Share: ' in capsys.readouterr().out
