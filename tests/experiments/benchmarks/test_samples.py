"""Tests experiments/benchmarks/samples.py on the clock it is given."""

import dataclasses
import itertools
import json

import pytest

from experiments import configuration
from experiments.benchmarks import samples


@pytest.mark.parametrize('name', samples.SIZES)
def test_sizes_are_valid(name):
  configuration.validate(samples.config_of(name))


def test_a_rate_is_all_that_was_returned_by_the_time_it_took(monkeypatch):
  # A reading of the clock before the first call and after each.
  clock = iter([10.0, 10.5, 11.5, 14.0])
  monkeypatch.setattr(samples.time, 'perf_counter', lambda: next(clock))
  calls = itertools.count(1)
  assert samples.rate(lambda: 100 * next(calls), turn_seconds=3.0) == (
      (100 + 200) / 4.0
  )


def test_a_turn_is_at_least_one_call(monkeypatch):
  clock = iter([0.0, 5.0, 8.0])
  monkeypatch.setattr(samples.time, 'perf_counter', lambda: next(clock))
  assert samples.rate(lambda: 16, turn_seconds=1.0) == 2.0


def test_makes_and_trains_in_turn_and_writes_what_it_measured(
    tmp_path, monkeypatch, capsys
):
  tiny = dataclasses.replace(
      samples.config_of('reverse'),
      hidden_sizes=(3,), batch_size=8, updates_per_call=2, max_length=2,
  )
  tiny.core = dataclasses.replace(tiny.core, mem_slots=2, head_size=3)
  monkeypatch.setattr(samples, 'config_of', lambda name: tiny)
  # Devices are there already.
  monkeypatch.setattr(samples.jax.config, 'update', lambda *_: None)
  output = tmp_path / 'results.json'
  samples.main([
      '--sizes=reverse', '--rounds=2', '--turn_seconds=0',
      f'--output={output}',
  ])
  results = json.loads(output.read_text())
  measured = results['sizes']['reverse']
  assert [len(measured[kind]) for kind in ('made', 'used')] == [2, 2]
  assert min(*measured['made'], *measured['used']) > 0
  assert 'reverse' in capsys.readouterr().out


def test_the_ratio_is_that_of_each_round(capsys):
  made, used = [100.0, 300.0, 900.0], [10.0, 20.0, 30.0]
  samples.Console(width=100).print(
      samples.table({'x': {'made': made, 'used': used}})
  )
  printed = capsys.readouterr().out
  assert '15.0' in printed
  assert '(10.0 to 30.0)' in printed
