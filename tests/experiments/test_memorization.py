"""Tests experiments/memorization/: its presets, sweeps and programs."""

import ast
import dataclasses
import subprocess
import sys

import pytest

from experiments import configuration
from experiments.learn_to_execute import train as learn_to_execute
from experiments.memorization import sweep
from experiments.memorization import train


def config_of(preset, **fields):
  config = configuration.with_preset(train.Config, sweep.PRESETS, preset)
  return dataclasses.replace(config, **fields)


@pytest.mark.parametrize('preset', sweep.PRESETS)
def test_presets_are_valid_and_memorize(preset):
  config = config_of(preset)
  configuration.validate(config)
  assert learn_to_execute.make_task(config).is_memory
  assert config.max_length == 5


def test_sweep_is_plain_data():
  assert ast.literal_eval(repr(sweep.PRESETS)) == sweep.PRESETS


def test_quick_table_has_all_cores_on_one_task_and_the_rmc_on_all():
  runs = [
    sweep.PRESETS[run['preset']] for run in sweep.SWEEPS['quick_table'].values()
  ]
  assert {run['core']['name'] for run in runs if run['task'] == 'reverse'} == {
    'relational_memory',
    'lstm',
    'lstm_bank',
    'dnc',
  }
  assert {
    run['task'] for run in runs if run['core']['name'] == 'relational_memory'
  } == {'copy', 'reverse', 'double'}
  # The runs differ in task and core only.
  for run in runs:
    same = {'task': run['task'], 'core': run['core']}
    assert sweep.PRESETS['quick'] | same == run


def test_table_1_has_all_sizes_on_three_tasks():
  assert len(sweep.SWEEPS['table_1']) == 3 * 21


def test_other_task_is_refused():
  with pytest.raises(
    configuration.ConfigurationError,
    match="task must be one of copy, reverse, double.*'addition'",
  ):
    configuration.validate(config_of('quick', task='addition'))


@pytest.mark.parametrize(
  'module, flags, code, expected',
  [
    (
      'train',
      ['--preset=quick_double', '--print_config'],
      0,
      '"task": "double"',
    ),
    ('analysis', [], 77, 'experiments.memorization.analysis runs/'),
  ],
)
def test_programs_start(module, flags, code, expected):
  run = subprocess.run(
    [sys.executable, '-m', f'experiments.memorization.{module}', *flags],
    capture_output=True,
    text=True,
    check=False,
  )
  assert run.returncode == code
  assert expected in run.stdout + run.stderr
