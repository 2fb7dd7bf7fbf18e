"""Tests experiments/benchmarks/scaling.py."""

import argparse
import dataclasses
import json

import pytest
from rich.console import Console

from experiments.benchmarks import harness
from experiments.benchmarks import scaling
from experiments.benchmarks.scaling import Layout
from experiments.benchmarks.scaling import PLAIN
from experiments.benchmarks.sizes import Size

SIZE = Size(
  steps=3,
  batch=8,
  features=7,
  mem_slots=2,
  head_size=11,
  num_heads=5,
  source='tests',
)


def test_every_number_of_devices_has_its_share():
  found = scaling.layouts([1, 2, 4], [1, 3])
  assert found[0] == PLAIN
  assert [f.share for f in found if not f.mapped] == [1, 2, 3, 4]
  mapped = [f for f in found if f.mapped]
  assert mapped == [Layout(1), Layout(2), Layout(4), Layout(3, 3)]
  assert len({layout.name for layout in found}) == len(found)


def test_layouts_get_their_devices_and_their_share_of_the_batch(monkeypatch):
  added = {}
  monkeypatch.setattr(
    harness.Session,
    'add',
    lambda self, name, worker, request, **more: (
      added.update({name: (request, more)}) or self.entries.update({name: {}})
    ),
  )
  options = argparse.Namespace(device='gpu')
  with harness.Session(options) as session:
    for layout in (PLAIN, PLAIN._replace(share=2), Layout(4, 2)):
      scaling.add(session, layout, SIZE, 'update')
    scaling.add(session, PLAIN._replace(share=3), SIZE, 'update')
    reason = session.entries['1/3 by jit']['left_out']
  assert reason == 'a batch of 8 does not divide by 3'
  assert {
    name: request['size']['batch'] for name, (request, _) in added.items()
  } == {'jit': 8, '1/2 by jit': 4, 'pmap, 4 devices, 2 processes': 8}
  assert added['jit'][1]['required']
  assert not added['1/2 by jit'][1]['required']
  variables = added['pmap, 4 devices, 2 processes'][1]['variables']
  assert [each['CUDA_VISIBLE_DEVICES'] for each in variables] == ['0', '1']
  for each in variables:
    assert each['XLA_FLAGS'].endswith('device_count=2')


def test_table_shows_the_cost_of_smaller_shares(capsys):
  def entry(layout, *trials):
    return {
      'layout': layout._asdict(),
      'seconds': {'train': [[seconds, seconds] for seconds in trials]},
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
      'implementations': dict(zip(names, found, strict=True))
      | {
        'pmap, 8 devices': {
          'layout': Layout(8)._asdict(),
          'left_out': 'no such luck',
        }
      },
      'idle_share': 0.0,
    },
  )
  Console(width=120).print(table)
  text = capsys.readouterr().out
  # Ratios of 0.5, 0.4 and 0.8, one per trial; 80 ms is 20 less than 100.
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
      '--trials=2',
      '--trial_seconds=0.01',
      '--device=cpu',
      f'--output={output}',
    ]
  )
  found = json.loads(output.read_text())['sizes']['tiny']['implementations']
  assert len(found) == 1 + 1 + 2 + 1
  for name, entry in found.items():
    assert 'left_out' not in entry, (name, entry)
    assert len(entry['seconds']['train']) == 2
