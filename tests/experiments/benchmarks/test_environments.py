"""Tests experiments/benchmarks/environments.py and its worker."""

import argparse

import pytest

from experiments.benchmarks import environments
from experiments.benchmarks import harness
from experiments.benchmarks.workers import environments_worker as worker

OPTIONS = argparse.Namespace(
  device='cpu', trials=1, trial_seconds=0.0, limit=60.0
)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
  monkeypatch.setattr(worker, '_STEPS', 24)
  monkeypatch.setattr(worker, '_LONGEST', 5)
  monkeypatch.setattr(worker, '_HOST_STEPS', 7)
  monkeypatch.setattr(worker, '_RECORDED', (2, 3))


@pytest.mark.parametrize('name', ['mini_pacman', 'box_world'])
@pytest.mark.parametrize(
  'request_, items',
  [
    ({'program': 'rollout', 'games': 8}, 24),
    ({'program': 'rollout', 'games': 1, 'observes': False}, 5),
    ({'program': 'vector_env', 'games': 4}, 28),
    ({'program': 'gymnasium'}, 7),
    ({'program': 'dm_env'}, 7),
    ({'program': 'reference'}, 6),
  ],
)
def test_programs_count_their_steps(name, request_, items):
  num_levels = 3 if name == 'box_world' else 0
  step, facts = worker._PROGRAMS[request_['program']](
    {'name': name, 'num_levels': num_levels} | request_
  )
  step()
  step()
  assert facts['items'] == items


@pytest.mark.parametrize('name', ['mini_pacman', 'Breakout-MinAtar'])
def test_games_of_gymnax_and_behind_its_interface(name):
  pytest.importorskip(
    'gymnax', reason='no release of gymnax allows the JAX of this Python'
  )
  step, facts = worker._gymnax({'name': name, 'games': 3})
  step()
  assert facts == {'items': 15, 'batches': 5}


def test_every_size_names_known_games_and_programs(monkeypatch):
  asked = []

  def measure(workers, options):
    asked.append(workers)
    return {}

  monkeypatch.setattr(environments.throughput, 'measure', measure)
  for size in environments.SIZES:
    environments.measure(size, OPTIONS)
  assert len(asked) == 10
  for workers in asked:
    assert next(iter(workers)) == 'rmc_jax 1024'
    for module, request in workers.values():
      assert harness.command(module)[-1].endswith('environments_worker')
      assert request['program'] in worker._PROGRAMS
  # Another game replaces that of the size.
  _, request = asked[1]['gymnax Asterix 1024']
  assert request['name'] == 'Asterix-MinAtar'
