"""Fixtures of the benchmarks' tests."""

import json
import pathlib
import sys

import pytest

from experiments.benchmarks import harness
from experiments.benchmarks import train


@pytest.fixture
def fake_workers(monkeypatch):
  """Starts fake_worker.py in place of every worker."""
  fake = pathlib.Path(__file__).with_name('fake_worker.py')
  monkeypatch.setattr(
    harness, 'command', lambda worker: [sys.executable, str(fake)]
  )


@pytest.fixture
def tiny_nth_farthest():
  """A preset of the benchmark `train`, as it arrives from JSON."""
  preset = train.settings('quick', 3) | {
    'num_objects': 3,
    'num_features': 5,
    'core': {
      'name': 'relational_memory',
      'mem_slots': 2,
      'head_size': 7,
      'num_heads': 11,
    },
    'hidden_sizes': (13, 17),
    'batch_size': 8,
  }
  return json.loads(json.dumps(preset))
