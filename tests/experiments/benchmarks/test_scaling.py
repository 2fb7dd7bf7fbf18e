"""Tests experiments/benchmarks/scaling.py and its worker."""

import dataclasses
import json
import os
import pathlib
import sys

import numpy as np
import pytest
from rich.console import Console

from experiments.benchmarks import contest
from experiments.benchmarks import scaling
from experiments.benchmarks.scaling import Layout
from experiments.benchmarks.scaling import PLAIN
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.workers import scaling_worker

ROOT = pathlib.Path(__file__).resolve().parents[3]
ENVIRONMENT = {'PYTHONPATH': str(ROOT), 'PATH': os.environ['PATH']}
SIZE = Size(
  steps=3,
  batch=8,
  features=7,
  mem_slots=2,
  head_size=11,
  num_heads=5,
  source='tests',
)
# Answers with what it was asked, or dies, or waits for one that has died.
ECHO = """
import json, sys, time
for line in sys.stdin:
  question = json.loads(line)
  if question['ask'] == 'fail':
    if question['process'] == 2: sys.exit(7)
    time.sleep(60)
  with open(sys.argv[1] + str(question['process']), 'a') as file:
    file.write(line)
  print(json.dumps(question), flush=True)
"""


def test_every_number_of_devices_has_its_share():
  found = scaling.layouts([1, 2, 4], [1, 3])
  assert found[0] == PLAIN
  assert [f.share for f in found if not f.mapped] == [1, 2, 3, 4]
  pmapped = [f for f in found if f.mapped]
  assert pmapped == [Layout(1), Layout(2), Layout(4), Layout(3, 3)]
  assert len({layout.name for layout in found}) == len(found)


def losses(size, **request):
  given = {'size': dataclasses.asdict(size), 'processes': 1, **request}
  return scaling_worker.Update(given, {}).results()['losses']


def test_layouts_make_the_same_updates():
  plain = losses(SIZE, mapped=False)
  for devices in (1, 2, 4):
    mapped = losses(SIZE, mapped=True, devices=devices)
    # Sums over the batch in another order: a rounding or two of 6e-8.
    np.testing.assert_allclose(mapped, plain, rtol=1e-6)
  assert plain[0] != plain[1]
  half = losses(dataclasses.replace(SIZE, batch=4), mapped=False)
  assert abs(half[0] / plain[0] - 1) > 1e-3  # So that a wrong share shows.


def test_more_devices_than_there_are_is_refused():
  with pytest.raises(RuntimeError, match='5 devices are asked.*there are 4'):
    losses(dataclasses.replace(SIZE, batch=5), mapped=True, devices=5)


@pytest.fixture
def job(tmp_path):
  command = [sys.executable, '-c', ECHO, str(tmp_path / 'asked')]
  job = scaling.Job([command] * 3, [ENVIRONMENT] * 3, tmp_path)
  yield job
  job.stop()


def test_job_asks_every_process_as_itself(job, tmp_path):
  answer = job.ask(30, ask='check', path='x.npz')
  assert answer == {'ask': 'check', 'process': 0, 'path': 'x.npz'}
  paths = set()
  for process in range(3):
    asked = json.loads((tmp_path / f'asked{process}').read_text())
    assert asked['process'] == process
    paths.add(asked['path'])
  assert len(paths) == 3


def test_job_ends_when_one_process_does(job):
  with pytest.raises(contest.Failed, match='exit code 7'):
    job.ask(30, ask='fail')
  assert job.cpu_seconds() == 0  # There is nobody left.


def test_table_says_what_smaller_shares_cost(capsys):
  def entry(layout, *rounds):
    return {
      'layout': layout._asdict(),
      'seconds': [[seconds, seconds] for seconds in rounds],
    }

  found = [
    entry(PLAIN, 0.1, 0.2, 0.1),
    entry(PLAIN._replace(share=2), 0.06, 0.06, 0.07),
    entry(Layout(2), 0.05, 0.08, 0.08),
  ]
  names = ['jit', '1/2 by jit', 'pmap, 2 devices']
  table = scaling.table(
    'tests',
    {
      'size': dataclasses.asdict(SIZE),
      'layouts': dict(zip(names, found, strict=True))
      | {
        'pmap, 8 devices': {
          'layout': Layout(8)._asdict(),
          'left_out': 'no such luck',
        }
      },
      'idle_share': 0.0,
    },
  )
  Console(width=100).print(table)
  text = capsys.readouterr().out
  # Ratios of 0.5, 0.4 and 0.8, each of a round; 80 ms is 20 less than 100.
  for cell in ('0.500', '(0.400 to 0.800)', '-20.0', '120.0', '-40.0'):
    assert cell in text, cell
  assert 'pmap, 8 devices: no such luck' in text
  assert text.count('1/2 by jit') == 0


@pytest.mark.slow
@pytest.mark.multiprocess
def test_devices_and_processes_agree(monkeypatch, tmp_path):
  monkeypatch.setattr(scaling, 'SIZES', {'tiny': SIZE})
  output = tmp_path / 'results.json'
  scaling.main(
    [
      '--sizes=tiny',
      '--devices=1,2',
      '--processes=2',
      '--rounds=2',
      '--turn_seconds=0.01',
      '--device=cpu',
      f'--output={output}',
    ]
  )
  found = json.loads(output.read_text())['sizes']['tiny']['layouts']
  assert len(found) == 1 + 1 + 2 + 1
  for name, entry in found.items():
    assert 'left_out' not in entry, (name, entry)
    assert len(entry['seconds']) == 2
