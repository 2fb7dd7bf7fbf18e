"""Tests experiments/memorization/: its presets and its sweeps."""

import dataclasses
import subprocess
import sys

import pytest

from experiments import configuration
from experiments.learn_to_execute import train
from experiments.memorization import sweep


def config_of(preset, **fields):
  config = configuration.with_preset(train.Config, sweep.PRESETS, preset)
  return dataclasses.replace(config, **fields)


@pytest.mark.parametrize('preset', sweep.PRESETS)
def test_presets_are_valid_and_memorize(preset):
  config = config_of(preset)
  configuration.validate(config)
  assert train.make_task(config).is_memory
  assert config.max_length == 5


def test_the_quick_table_is_all_cores_on_one_task_and_ours_on_all():
  runs = [
      sweep.PRESETS[run['preset']]
      for run in sweep.SWEEPS['quick_table'].values()
  ]
  assert {
      run['core']['name'] for run in runs if run['task'] == 'reverse'
  } == {'relational_memory', 'lstm', 'lstm_bank', 'dnc'}
  assert {
      run['task'] for run in runs if run['core']['name'] == 'relational_memory'
  } == {'copy', 'reverse', 'double'}
  # What differs is the task and the core.
  for run in runs:
    assert sweep.QUICK | {'task': run['task'], 'core': run['core']} == run


def test_table_1_has_all_sizes_on_three_tasks():
  assert len(sweep.SWEEPS['table_1']) == 3 * 21


def test_both_programs_start():
  for module, expected in {
      'train': '"task": "double"',
      'analysis': 'experiments.memorization.analysis runs/',
  }.items():
    flags = ['--preset=quick_double', '--print_config']
    run = subprocess.run(
        [sys.executable, '-m', f'experiments.memorization.{module}',
         *(flags if module == 'train' else [])],
        capture_output=True, text=True, check=False,
    )
    assert expected in run.stdout + run.stderr
