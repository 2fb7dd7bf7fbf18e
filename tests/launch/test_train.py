"""Tests launch/train.sh with a fake Python."""

import pathlib
import shutil
import subprocess

import pytest

from tests.launch.programs import write_program

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / 'launch'


@pytest.fixture
def checkout(tmp_path):
  """A checkout whose Python prints its folder, arguments and environment."""
  (tmp_path / 'launch').mkdir()
  shutil.copy(LAUNCH / 'train.sh', tmp_path / 'launch')
  write_program(tmp_path / 'launch/setup.sh', 'echo setup')
  write_program(
    tmp_path / '.venv/bin/python',
    'echo "$PWD: $*"',
    'echo "$PYTHONPATH"',
    'echo "$GLIBC_TUNABLES"',
    'exit 75',
  )
  for name in ('babi', 'benchmarks', 'nth_farthest'):
    (tmp_path / 'experiments' / name).mkdir(parents=True)
    (tmp_path / 'experiments' / name / 'train.py').touch()
    if name != 'benchmarks':  # Not an experiment.
      (tmp_path / 'experiments' / name / 'sweep.py').touch()
  return tmp_path


@pytest.mark.parametrize(
  ('given', 'run'),
  [
    ([], 'nth_farthest.train'),
    (['--preset=paper'], 'nth_farthest.train --preset=paper'),
    (['babi', '--workdir=a b', '--help'], 'babi.train --workdir=a b --help'),
  ],
)
def test_runs_the_experiment_in_the_current_folder(
  checkout, tmp_path_factory, given, run
):
  elsewhere = tmp_path_factory.mktemp('elsewhere')
  out = train(checkout, *given, cwd=elsewhere)
  assert out.stdout.splitlines() == [
    'setup',
    f'{elsewhere}: -P -m experiments.{run}',
    str(checkout),
    'glibc.malloc.hugetlb=1',
  ]
  assert out.returncode == 75


def test_existing_allocator_settings_are_kept(checkout):
  out = train(checkout, cwd=checkout, GLIBC_TUNABLES='glibc.malloc.arena_max=3')
  assert out.stdout.splitlines()[-1] == 'glibc.malloc.arena_max=3'


@pytest.mark.parametrize('name', ['nth_nearest', 'benchmarks'])
def test_unknown_experiment_is_refused_with_the_choices(checkout, name):
  out = train(checkout, name, cwd=checkout)
  assert out.returncode == 77
  assert out.stdout == ''
  assert f"'{name}'" in out.stderr
  assert out.stderr.split()[-2:] == ['babi', 'nth_farthest']
  assert out.stderr.count('benchmarks') == (name == 'benchmarks')


def test_failed_setup_prevents_training(checkout):
  write_program(checkout / 'launch/setup.sh', 'exit 77')
  out = train(checkout, cwd=checkout)
  assert (out.returncode, out.stdout) == (77, '')


def train(checkout, *args, cwd, **environment):
  return subprocess.run(
    [checkout / 'launch/train.sh', *args],
    cwd=cwd,
    env={'PATH': '/usr/bin:/bin', **environment},
    capture_output=True,
    text=True,
    stdin=subprocess.DEVNULL,
  )
