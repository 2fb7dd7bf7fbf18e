"""Tests experiments/benchmarks/workers/serve.py by talking to it over pipes."""

import os
import pathlib
import sys

import pytest

from experiments.benchmarks import contest

ROOT = pathlib.Path(__file__).resolve().parents[3]
COUNTING = """
from experiments.benchmarks.workers import serve

class Counting(serve.Contestant):
  def __init__(self, request, arrays):
    self.path = request['path']
  def build(self, what):
    return self.step, {}
  def step(self):
    with open(self.path, 'a') as file:
      file.write('step ')

serve.serve(Counting)
"""


@pytest.fixture
def worker(tmp_path):
  environment = {'PYTHONPATH': str(ROOT), 'PATH': os.environ['PATH']}
  command = [sys.executable, '-c', COUNTING]
  result = contest.Worker(command, environment, tmp_path)
  yield result
  result.stop()


def test_the_first_step_of_a_turn_is_not_counted(worker, tmp_path):
  path = tmp_path / 'steps'
  worker.ask(30, ask='load', path=str(path))
  worker.ask(30, ask='build', what='train')
  done = 1  # It is compiled in.
  for steps in (3, 5):
    seconds = worker.ask(30, ask='run', what='train', steps=steps)['seconds']
    assert len(seconds) == steps
    done += 1 + steps
    assert path.read_text().split() == ['step'] * done


def test_an_unknown_question_is_an_error(worker):
  with pytest.raises(contest.Failed, match="no attribute 'dance'"):
    worker.ask(30, ask='dance')
