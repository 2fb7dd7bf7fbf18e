"""Tests experiments/benchmarks/train.py and the two programs it compares."""

import json
import types

import pytest

from experiments.benchmarks import contest
from experiments.benchmarks import train
from experiments.benchmarks.workers import sonnet_train_worker
from experiments.benchmarks.workers import train_worker
from rmc_jax.parity import reference

# As it comes out of JSON, with sizes that all differ.
TINY = json.loads(
  json.dumps(
    train.settings('quick', 3)
    | {
      'num_objects': 3,
      'num_features': 5,
      'core': {
        'name': 'relational_memory',
        'mem_slots': 2,
        'head_size': 7,
        'num_heads': 11,
      },
      'hidden_sizes': (13, 17),
      'batch_size': 8,  # over the four devices of the tests
    }
  )
)


def test_settings_are_ours_but_for_order_and_optimiser():
  preset = train.settings('paper', 2)
  assert preset['batch_size'] == 1600
  assert preset['num_objects'] == 8
  assert preset['core']['mem_slots'] == 8
  assert preset['order'] == 'nearest'
  assert preset['optimizer']['schedule'] == 'exponential'
  assert preset['updates_per_call'] == 2


def test_our_side_makes_the_updates_it_says():
  side = train_worker.Training({'preset': dict(TINY)}, {})
  step, _ = side.build('train')
  step()
  step()
  assert int(side._state.step) == 2 * 3


def test_script_gets_the_numbers_that_it_would_read_wrong():
  given = {}

  def relational_memory(**arguments):
    given['core'] = arguments

  script = types.SimpleNamespace(
    __name__='script',
    FLAGS=lambda words: given.update(flags=words),
    snt=types.SimpleNamespace(
      RelationalMemory=relational_memory,
      Linear='untouched',
      nets=types.SimpleNamespace(
        MLP=lambda sizes, **more: given.update(mlp=(sizes, more))
      ),
    ),
    six=None,
  )
  side = object.__new__(sonnet_train_worker.Script)
  side._script = script
  side._adapt(TINY)
  assert '--num_mems=2' in given['flags']
  assert '--batch_size=8' in given['flags']
  assert '--epochs=1000000' in given['flags']
  # As the script calls them: its heads and blocks are its number of memories.
  script.snt.RelationalMemory(
    mem_slots=2, head_size=7, num_heads=2, num_blocks=2, gate_style='unit'
  )
  assert given['core'] == {
    'mem_slots': 2,
    'head_size': 7,
    'num_heads': 11,
    'num_blocks': 1,
    'gate_style': 'unit',
  }
  script.snt.nets.MLP(output_sizes=(256,) * 4, activate_final=True)
  assert given['mlp'] == ([13, 17], {'activate_final': True})
  assert script.snt.Linear == 'untouched'


def test_different_models_are_refused():
  def side(parameters):
    return {'about': {'parameters': parameters}}

  train.check_same({'a': side(5), 'b': side(5), 'c': {'left_out': 'why'}})
  with pytest.raises(contest.Failed, match='different models.*5.*7'):
    train.check_same({'a': side(5), 'b': side(7)})


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.skipif(
  not (reference.home() / 'reference/bin/python').exists(),
  reason='run launch/parity.sh first',
)
def test_both_sides_train_the_same_model(monkeypatch, tmp_path, capsys):
  # The devices are the benchmark's to choose.
  monkeypatch.setenv('XLA_FLAGS', '--xla_backend_optimization_level=0')
  monkeypatch.setattr(train, 'settings', lambda name, updates: TINY)
  output = tmp_path / 'results.json'
  train.main(
    [
      '--sizes=quick',
      '--rounds=3',
      '--turn_seconds=0.01',
      '--device=cpu',
      f'--output={output}',
    ]
  )
  results = json.loads(output.read_text())
  sides = results['sizes']['quick']['sides']
  assert [len(each['seconds']) for each in sides.values()] == [3, 3]
  about = [each['about']['parameters'] for each in sides.values()]
  assert about[0] == about[1] > 0
  table = capsys.readouterr().out
  assert 'authors' in table
  assert 'examples/s' in table
