"""Tests experiments/benchmarks/workers/training_worker.py."""

import dataclasses
import types

import jax
import numpy as np
import pytest

from experiments.benchmarks import counts
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.workers import sonnet_train_worker
from experiments.benchmarks.workers import training_worker

SIZE = Size(
  steps=3, batch=8, features=7, mem_slots=2, head_size=11, num_heads=5,
  source='tests',
)  # fmt: skip


def load(program, **request):
  return training_worker.load({'program': program, 'processes': 1, **request})


def losses(size, **request):
  program = load('update', size=dataclasses.asdict(size), **request)
  return program.results()['losses']


@pytest.mark.parametrize(
  'devices',
  [4, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 2))],
)
def test_layouts_make_the_same_updates(devices):
  plain = losses(SIZE, mapped=False)
  mapped = losses(SIZE, mapped=True, devices=devices)
  # Sums over the batch in another order: a rounding or two of 6e-8.
  np.testing.assert_allclose(mapped, plain, rtol=1e-6)
  assert plain[0] != plain[1]


@pytest.mark.slow
def test_a_wrong_share_would_be_noticed():
  plain = losses(SIZE, mapped=False)
  half = losses(dataclasses.replace(SIZE, batch=4), mapped=False)
  assert abs(half[0] / plain[0] - 1) > 1e-3


def test_more_devices_than_there_are_is_refused():
  with pytest.raises(RuntimeError, match='devices is 5; there are 4'):
    losses(dataclasses.replace(SIZE, batch=5), mapped=True, devices=5)


@pytest.mark.parametrize('devices', [2, 4])
def test_all_reduce_sums_an_array_as_large_as_the_gradient(devices):
  program = load('all_reduce', size=dataclasses.asdict(SIZE), devices=devices)
  total = program.results()['sum']
  assert total.shape == (counts.parameters(SIZE),)
  assert (total == devices).all()


def test_nth_farthest_makes_the_updates_of_its_preset(tiny_nth_farthest):
  program = load('nth_farthest', preset=tiny_nth_farthest)
  run, facts = program.build('train')
  assert facts == {'items': 8 * 3, 'batches': 3}
  run()
  run()
  assert program.results()['parameters'] > 0


@pytest.mark.parametrize('game', ['box_world', 'mini_pacman'])
def test_agents_are_trained_or_only_play(game):
  preset = {
    'channels': [3],
    'core': {'name': 'lstm', 'hidden_size': 5},
    'agent': {'unroll_length': 3},
    'batch_size': 8,
    'run': {'updates_per_call': 2},
  }
  if game == 'mini_pacman':
    preset['strides'] = [1]
  for program, batches in {'agent': 2, 'agent_pipeline': 1}.items():
    run, facts = load(program, game=game, preset=preset).build('train')
    run()
    run()
    assert facts == {'items': 8 * 3 * batches, 'batches': batches}


def test_pipelines_have_the_items_of_a_step(tmp_path, monkeypatch):
  preset = {'hidden_sizes': [3], 'batch_size': 8, 'max_length': 2}
  run, facts = load('samples_pipeline', preset=preset).build('train')
  run()
  assert facts == {'items': 8, 'batches': 1}
  np.arange(500, dtype='uint16').tofile(path := tmp_path / 'ids')
  monkeypatch.setattr(training_worker, '_BATCHES_READ', 5)
  core = {'name': 'lstm', 'hidden_size': 3}
  preset = {'embedding_size': 5, 'batch_size': 8, 'window': 3, 'core': core}
  run, facts = load(
    'text_pipeline',
    preset=preset,
    path=str(path),
    dtype='uint16',
    vocabulary_size=11,
  ).build('train')
  run()
  assert facts == {'items': 5 * 8 * 3, 'batches': 5}
  assert jax.device_count() == 4


def test_script_gets_its_heads_blocks_and_widths(tiny_nth_farthest):
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
  sonnet_train_worker.adapt(script, tiny_nth_farthest, iterations=iter)
  assert script.six.moves.range is iter
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
