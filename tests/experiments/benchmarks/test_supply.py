"""Tests experiments/benchmarks/supply.py on the clock it is given."""

import itertools

from rich.console import Console

from experiments.benchmarks import supply


def test_the_two_take_turns_after_a_call_that_compiles(monkeypatch):
  monkeypatch.setattr(supply.time, 'perf_counter', itertools.count().__next__)
  calls = []

  def make():
    calls.append('make')
    return 5

  def use():
    calls.append('use')
    return 3

  measured = supply.take_turns(make, use, rounds=2, turn_seconds=0.0)
  assert calls == ['make', 'use'] * 3
  # The clock goes on by one with every look at it: once before, once after.
  assert measured == {'made': [2.5, 2.5], 'used': [1.5, 1.5]}


def test_a_rate_is_all_that_was_returned_by_the_time_it_took(monkeypatch):
  # A reading of the clock before the first call and after each.
  clock = iter([10.0, 10.5, 11.5, 14.0])
  monkeypatch.setattr(supply.time, 'perf_counter', lambda: next(clock))
  calls = itertools.count(1)
  assert supply.rate(lambda: 100 * next(calls), turn_seconds=3.0) == (
    (100 + 200) / 4.0
  )


def test_a_turn_is_at_least_one_call(monkeypatch):
  clock = iter([0.0, 5.0, 8.0])
  monkeypatch.setattr(supply.time, 'perf_counter', lambda: next(clock))
  assert supply.rate(lambda: 16, turn_seconds=1.0) == 2.0


def test_the_ratio_is_that_of_each_round(capsys):
  made, used = [100.0, 300.0, 900.0], [10.0, 20.0, 30.0]
  Console(width=100).print(
    supply.table('words', {'x': {'made': made, 'used': used}})
  )
  printed = capsys.readouterr().out
  assert '15.0' in printed
  assert '(10.0 to 30.0)' in printed
