"""Tests throughput.py and the benchmarks on top of it."""

import argparse
import json

import numpy as np
import pytest
from rich.console import Console

from experiments.benchmarks import agents
from experiments.benchmarks import harness
from experiments.benchmarks import samples
from experiments.benchmarks import text
from experiments.benchmarks import throughput
from experiments.benchmarks import train
from experiments.benchmarks.workers import training_worker
from experiments.language_modeling import sweep as language_sweep
from experiments.learn_to_execute import sweep as programs_sweep
from rmc_jax.parity import reference

OPTIONS = argparse.Namespace(
  device='cpu',
  trials=2,
  trial_seconds=0.0,
  limit=60.0,
  updates=3,
  num_words=500,
)


def entry(items, *trials, batches=1):
  return {
    'build': {'train': {'items': items, 'batches': batches, 'seconds': 1.0}},
    'seconds': {'train': [[seconds] for seconds in trials]},
    'memory_bytes': 5_000_000,
    'peak_bytes': None,
  }


def test_ratio_is_per_item_and_within_a_trial(capsys):
  implementations = {
    # 100, 50 and 25 items per second, and 10, 10 and 1.
    'pipeline': entry(100, 1.0, 2.0, 4.0),
    'training': entry(20, 2.0, 2.0, 20.0, batches=2),
  }
  measured = {'implementations': implementations, 'idle_share': 0.0}
  Console(width=120).print(throughput.table('words', 'x', measured))
  printed = capsys.readouterr().out
  for cell in ('words/s', '10.00', '(5.00 to 25.00)', '1000.0', '50'):
    assert cell in printed, cell


@pytest.mark.parametrize('counts', [(5, 5), (5, 7)])
def test_different_models_are_not_compared(monkeypatch, counts):
  checked = []

  class Session:
    entries = {}

    def __init__(self, options): ...
    def __enter__(self):
      return self

    def __exit__(self, *args): ...
    def time(self): ...
    def result(self):
      return {}

    def add(self, name, worker, request, check, variables, required):
      del worker, request, variables
      checked.append((name, required))
      check({'parameters': np.array(counts[len(checked) - 1])})

  monkeypatch.setattr(harness, 'Session', Session)
  workers = {name: ('w', {}) for name in ('rmc_jax', 'authors')}
  if counts[0] == counts[1]:
    throughput.measure(workers, OPTIONS)
  else:
    with pytest.raises(harness.Failed, match='trains 7 parameters, not 5'):
      throughput.measure(workers, OPTIONS)
  assert checked == [('rmc_jax', True), ('authors', False)]


def test_train_settings_are_ours_except_order_and_optimiser():
  preset = train.settings('paper', 2)
  assert preset['batch_size'] == 1600
  assert preset['num_objects'] == 8
  assert preset['core']['mem_slots'] == 8
  assert preset['order'] == 'nearest'
  assert preset['optimizer']['schedule'] == 'exponential'
  assert preset['run']['updates_per_call'] == 2


@pytest.mark.parametrize('name', samples.SIZES)
def test_samples_sizes_are_valid(name):
  preset, changes = samples.SIZES[name]
  training_worker.make_config(
    training_worker.learn_to_execute.Config,
    through_json(programs_sweep.PRESETS[preset] | changes),
  )


@pytest.mark.parametrize('size', agents.SIZES.values(), ids=agents.SIZES)
def test_agents_sizes_are_valid(size):
  game, preset, changes = size
  training_worker.make_config(
    training_worker.GAMES[game].Config,
    through_json(agents.GAMES[game][preset] | changes),
  )


@pytest.mark.parametrize('name', text.SIZES)
def test_text_sizes_are_presets_with_their_vocabulary(name):
  config = training_worker.make_config(
    training_worker.language_modeling.Config,
    through_json(language_sweep.PRESETS[name]),
  )
  assert config.vocabulary_size in (None, text.SIZES[name])


def test_every_language_preset_is_a_size():
  assert set(text.SIZES) == set(language_sweep.PRESETS)


def test_artificial_text_has_the_frequencies_of_zipf(tmp_path, monkeypatch):
  monkeypatch.setattr(text, '_CHUNK', 700)  # The last one is not full.
  path = tmp_path / 'train.ids'
  dtype = text.write_text(path, vocabulary_size=11, num_words=30_011)
  assert dtype == 'uint16'
  ids = np.memmap(path, dtype, 'r')
  assert ids.shape == (30_011,)
  shares = np.bincount(ids, minlength=11) / len(ids)
  expected = 1 / np.arange(1, 12)
  # Five standard errors of the largest share.
  np.testing.assert_allclose(shares, expected / expected.sum(), atol=0.014)


def test_large_vocabularies_take_larger_ids(tmp_path):
  assert text.write_text(tmp_path / 'ids', 70_000, num_words=100) == 'int32'


TINY_SAMPLES = {
  'core': {'name': 'relational_memory', 'mem_slots': 2, 'head_size': 3},
  'hidden_sizes': (3,),
  'batch_size': 8,
  'run': {'updates_per_call': 2},
  'max_length': 2,
}


@pytest.mark.slow
def test_samples_are_measured(monkeypatch, tmp_path):
  monkeypatch.setitem(programs_sweep.PRESETS, 'quick_reverse', TINY_SAMPLES)
  check_run(samples.main, tmp_path, '--sizes=reverse')


@pytest.mark.slow
def test_text_is_measured(monkeypatch, tmp_path):
  tiny = {'core': {'head_size': 3}, 'embedding_size': 5, 'batch_size': 8}
  preset = language_sweep.PRESETS['quick'] | tiny | {'window': 3}
  monkeypatch.setitem(language_sweep.PRESETS, 'quick', preset)
  check_run(text.main, tmp_path, '--sizes=quick', '--num_words=500')


@pytest.mark.slow
@pytest.mark.live
@pytest.mark.skipif(
  not (reference.home() / 'reference/bin/python').exists(),
  reason='run launch/parity.sh first',
)
def test_train_and_the_authors_script_have_the_same_model(
  monkeypatch, tmp_path, tiny_nth_farthest
):
  monkeypatch.setattr(train, 'settings', lambda *_: tiny_nth_farthest)
  check_run(train.main, tmp_path, '--sizes=quick')


def check_run(main, folder, *flags):
  output = folder / 'results.json'
  main(
    ['--trials=2', '--trial_seconds=0', '--device=cpu', f'--output={output}']
    + list(flags)
  )
  (measured,) = json.loads(output.read_text())['sizes'].values()
  assert len(measured['implementations']) == 2
  for entry in measured['implementations'].values():
    assert 'left_out' not in entry, entry
    assert len(entry['seconds']['train']) == 2


def through_json(preset):
  return json.loads(json.dumps(preset))
