"""Tests launch/job.py: what the command lines of all launchers mean."""

import pathlib
import re
import runpy
import subprocess
import sys

import pytest

from launch import job


def parse(*arguments):
  return job.parse(job.parser('local', 'Starts things.'), arguments)


def test_one_run_gets_the_flags_of_the_trainer():
  options, (run,) = parse(
    'nth_farthest', '--preset=quick', '--config.seed=3', '--workdir=runs/x'
  )
  assert not options.dry_run
  assert run.command('python', '--process_id=1') == [
      'python', '-P', '-m', 'experiments.nth_farthest.train',
      '--preset=quick', '--workdir=runs/x', '--config.seed=3',
      '--process_id=1',
  ]  # fmt: skip


def test_without_preset_and_workdir_the_trainer_decides():
  _, (run,) = parse('nth_farthest')
  assert run.flags == ()
  assert run.name == ''


def test_a_sweep_is_a_run_for_each_of_its_settings():
  _, runs = parse('nth_farthest', '--sweep=quick_seeds', '--config.remat=True')
  assert [run.name for run in runs] == [f'seed_{seed}' for seed in range(5)]
  assert runs[2].flags == (
    '--preset=quick',
    '--config.seed=2',
    '--workdir=runs/nth_farthest-quick_seeds/seed_2',
    '--config.remat=True',
  )
  assert len({run.flags for run in runs}) == 5


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['nth_nearest'], "no experiment 'nth_nearest'; there are: .*nth_f"),
    (['nth_farthest', '--preset=quik'], "no preset 'quik'; .*quick"),
    (['nth_farthest', '--sweep=seeds'], "no sweep 'seeds'; .*quick_seeds"),
    (
      ['nth_farthest', '--sweep=quick_seeds', '--preset=quick'],
      'leave out --preset',
    ),
    (['nth_farthest', 'quick'], "is a flag; got 'quick'"),
    ([], 'experiment'),
  ],
)
def test_what_is_not_there_is_named_with_what_is(capsys, arguments, message):
  with pytest.raises(SystemExit) as ended:
    parse(*arguments)
  assert ended.value.code == 77
  assert re.search(message, capsys.readouterr().err)


def test_numbers_out_of_range_are_refused(capsys):
  parser = job.parser('local', '')
  parser.add_argument('--processes', type=job.number('processes', 1))
  with pytest.raises(SystemExit) as ended:
    job.parse(parser, ['nth_farthest', '--processes=0'])
  assert ended.value.code == 77
  assert "at least 1; got '0'" in capsys.readouterr().err


def test_every_preset_of_every_sweep_is_there():
  for experiment in job.experiments():
    path = job.ROOT / 'experiments' / experiment / 'sweep.py'
    page = runpy.run_path(str(path))
    for runs in page['SWEEPS'].values():
      assert runs
      for flags in runs.values():
        assert flags['preset'] in page['PRESETS']


def test_launchers_need_no_package():
  pages = sorted(pathlib.Path(job.__file__).parent.glob('*.py'))
  names = [f'launch.{page.stem}' for page in pages if page.stem != '__init__']
  assert {'launch.local', 'launch.slurm'} <= set(names)
  # -S: without site-packages.
  subprocess.run(
    [sys.executable, '-S', '-c', f'import {", ".join(names)}'],
    cwd=job.ROOT,
    check=True,
  )
