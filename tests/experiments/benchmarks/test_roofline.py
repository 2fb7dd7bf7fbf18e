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


def test_bound_takes_weights_from_where_they_are():
  phase = counts.Phase(
    'loop', operations=600, bytes=70, weight_bytes=11, passes=3
  )
  operations, moved = roofline.bound(
    phase, roofline.Rates(product=200, copy=10, weights=33)
  )
  assert operations == pytest.approx(3)
  assert moved == pytest.approx(7 + 1)


def measured():
  """Two rounds at 1 operation and 1 byte a ns, the second half as fast."""
  product, copied = 10**9, 10**6
  phases = counts.training_step(SIZE)
  bound = sum(max(p.operations, p.all_bytes) for p in phases) / 1e9
  rounds = {
    'rmc_jax': [4 * bound, 4 * bound],
    'product': [1.0, 2.0],
    'copy': [1e-3, 2e-3],
    'weights': [1e-3, 2e-3],
    'linears': [1.0, 3.0],
  }
  return {
    'size': dataclasses.asdict(SIZE),
    'itemsize': 4,
    'facts': {
      'product': {'operations': product},
      'copy': {'bytes': copied},
      'weights': {'bytes': copied},
      'linears': {'operations': product},
    },
    # The median of three steps, not their mean.
    'seconds': {
      name: [[s, s, 9 * s] for s in turns] for name, turns in rounds.items()
    },
  }


def test_share_is_of_the_same_round(capsys):
  Console(width=100).print(roofline.table('tests', measured()))
  text = capsys.readouterr().out
  # A quarter in the first round, a half in the second.
  assert 'Share: 38% (25% to 50%)' in text
  assert 'Linears alone: 2000.0 (1000.0 to 3000.0) ms' in text
  for phase in counts.training_step(SIZE):
    assert phase.name in text


@pytest.mark.slow
def test_everything_is_measured_in_one_run(monkeypatch, tmp_path, capsys):
  # Copying as much as is asked of it takes the device's time, not ours.
  monkeypatch.setattr(roofline, '_COPIED', 1 << 20)
  monkeypatch.setattr(roofline, 'SIZES', {'tiny': SIZE})
  output = tmp_path / 'results.json'
  roofline.main(
    [
      '--sizes=tiny',
      '--rounds=2',
      '--turn_seconds=0.01',
      '--device=cpu',
      f'--output={output}',
    ]
  )
  results = json.loads(output.read_text())
  seconds = results['sizes']['tiny']['seconds']
  assert {name: len(turns) for name, turns in seconds.items()} == dict.fromkeys(
    ['rmc_jax', 'product', 'copy', 'weights', 'linears'], 2
  )
  assert 'Share: ' in capsys.readouterr().out
