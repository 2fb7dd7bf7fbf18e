"""Tests `launch.job`."""

import pathlib
import re
import runpy
import subprocess
import sys

import pytest

from launch import job


def parse(*arguments):
  parser = job.Parser('local', 'Starts runs.')
  parser.add_integer('--processes', 'processes of each run')
  return job.parse(parser, arguments)


def test_run_gets_the_flags_of_the_trainer():
  options, (run,) = parse(
    'nth_farthest', '--preset=quick', '--config.depth=3', '--workdir=runs/x'
  )
  assert not options.dry_run
  assert run.command('python', '--process_id=1') == [
      'python', '-P', '-m', 'experiments.nth_farthest.train',
      '--preset=quick', '--workdir=runs/x', '--config.depth=3',
      '--process_id=1',
  ]  # fmt: skip


def test_preset_and_workdir_are_passed_only_if_given():
  _, (run,) = parse('nth_farthest')
  assert run.flags == ()
  assert run.name == ''


def test_sweep_makes_one_run_for_each_of_its_entries():
  path = job.ROOT / 'experiments/nth_farthest/sweep.py'
  sweep = runpy.run_path(str(path))['SWEEPS']['quick_seeds']
  _, runs = parse('nth_farthest', '--sweep=quick_seeds', '--config.depth=3')
  assert [run.name for run in runs] == list(sweep)
  for run, settings in zip(runs, sweep.values(), strict=True):
    workdir = f'runs/nth_farthest-quick_seeds/{run.name}'
    assert run.workdir == workdir
    assert run.flags == (
      *(f'--{name}={value}' for name, value in settings.items()),
      f'--workdir={workdir}',
      '--config.depth=3',
    )
  assert len({run.flags for run in runs}) == len(runs) > 1


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['nth_nearest'], "'nth_nearest'.*nth_farthest"),
    (['nth_farthest', '--preset=quik'], "--preset.*'quik'.*quick"),
    (['nth_farthest', '--sweep=seeds'], "--sweep.*'seeds'.*quick_seeds"),
    (
      ['nth_farthest', '--sweep=quick_seeds', '--preset=quick'],
      '--preset=quick .*--sweep',
    ),
    (['nth_farthest', 'quick'], "'quick'"),
    (['nth_farthest', '--processes=0'], "--processes.*at least 1.*'0'"),
    ([], 'experiment'),
  ],
)
def test_invalid_argument_is_named_with_its_value(capsys, arguments, message):
  with pytest.raises(SystemExit) as exit_info:
    parse(*arguments)
  assert exit_info.value.code == 77
  assert re.search(message, capsys.readouterr().err)


def test_sweeps_use_existing_presets():
  for experiment in job.experiments():
    path = job.ROOT / 'experiments' / experiment / 'sweep.py'
    sweep_file = runpy.run_path(str(path))
    for runs in sweep_file['SWEEPS'].values():
      assert runs
      for flags in runs.values():
        assert flags['preset'] in sweep_file['PRESETS']


def test_launchers_import_only_the_standard_library():
  files = sorted(pathlib.Path(job.__file__).parent.glob('*.py'))
  names = [f'launch.{file.stem}' for file in files if file.stem != '__init__']
  assert {'launch.local', 'launch.slurm'} <= set(names)
  # -S: without site-packages.
  subprocess.run(
    [sys.executable, '-S', '-c', f'import {", ".join(names)}'],
    cwd=job.ROOT,
    check=True,
  )


@pytest.mark.parametrize(
  ('given', 'expected'),
  [('gs://b/run/', 'gs://b/run'), ('runs/x//', 'runs/x'), ('x', 'x')],
)
def test_slashes_at_the_end_of_a_workdir_are_removed(given, expected):
  parser, workdir = job.Parser('local', ''), f'--workdir={given}'
  _, (run,) = job.parse(parser, ['nth_farthest', workdir])
  assert run.workdir == expected
  assert run.flags == (f'--workdir={expected}',)
  _, runs = job.parse(parser, ['nth_farthest', '--sweep=quick_seeds', workdir])
  assert runs[0].workdir == f'{expected}/seed_0'


def test_unknown_urls_are_refused(capsys):
  with pytest.raises(SystemExit) as exit_info:
    job.parse(job.Parser('local', ''), ['nth_farthest', '--workdir=gcs://b/x'])
  assert exit_info.value.code == 77
  assert '--workdir=gcs://b/x must be' in capsys.readouterr().err
