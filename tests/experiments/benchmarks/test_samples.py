"""Tests experiments/benchmarks/samples.py on the clock it is given."""

import dataclasses
import json

import pytest

from experiments import configuration
from experiments.benchmarks import samples


@pytest.mark.parametrize('name', samples.SIZES)
def test_sizes_are_valid(name):
  configuration.validate(samples.config_of(name))


def test_makes_and_trains_in_turn_and_writes_what_it_measured(
  tmp_path, monkeypatch, capsys
):
  tiny = dataclasses.replace(
    samples.config_of('reverse'),
    hidden_sizes=(3,),
    batch_size=8,
    updates_per_call=2,
    max_length=2,
  )
  tiny.core = dataclasses.replace(tiny.core, mem_slots=2, head_size=3)
  monkeypatch.setattr(samples, 'config_of', lambda name: tiny)
  # Devices are there already.
  monkeypatch.setattr(samples.jax.config, 'update', lambda *_: None)
  output = tmp_path / 'results.json'
  samples.main(
    [
      '--sizes=reverse',
      '--rounds=2',
      '--turn_seconds=0',
      f'--output={output}',
    ]
  )
  results = json.loads(output.read_text())
  measured = results['sizes']['reverse']
  assert [len(measured[kind]) for kind in ('made', 'used')] == [2, 2]
  assert min(*measured['made'], *measured['used']) > 0
  assert 'reverse' in capsys.readouterr().out
