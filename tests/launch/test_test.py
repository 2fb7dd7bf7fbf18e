"""Tests launch/test.sh with a fake Python."""

import pathlib
import shutil
import subprocess

import pytest

from tests.launch.programs import write_program

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / 'launch'


@pytest.fixture
def checkout(tmp_path):
  """A checkout whose Python prints its arguments and fails if one is $FAILS."""
  (tmp_path / 'launch').mkdir()
  shutil.copy(LAUNCH / 'test.sh', tmp_path / 'launch')
  write_program(tmp_path / 'launch/setup.sh', 'exit 0')
  for venv in ('.venv', '.venv-3.14'):
    write_program(
      tmp_path / venv / 'bin/python',
      'echo "$*"',
      'case " $* " in *" $FAILS "*) exit 1 ;; esac',
    )
  write_program(tmp_path / 'second', 'echo 3.14')
  return tmp_path


def test_summary_has_every_section(checkout):
  out = run_all(checkout, SECOND_PYTHON=str(checkout / 'second'))
  assert out.returncode == 0, out.stderr
  results = [line.split()[0] for line in summary(out)]
  assert results == ['ok'] * 7
  assert 'Python 3.14' in summary(out)[-1]


@pytest.mark.parametrize(
  ('fails', 'failed'),
  [
    ('ruff', ['format', 'lint']),
    ('pyright', ['types']),
    ('-q', ['tests', 'slow', 'multiprocess']),
  ],
)
def test_other_sections_run_after_a_failed_one(checkout, fails, failed):
  out = run_all(checkout, FAILS=fails, SECOND_PYTHON='none')
  assert out.returncode == 1
  lines = [line.split() for line in summary(out)]
  assert len(lines) == 7
  assert [line[1] for line in lines if line[0] == 'FAILED'] == failed


def test_arguments_run_only_pytest(checkout):
  out = run_all(checkout, 'tests/cores', '-k', 'a gate', FAILS='tests/cores')
  assert out.stdout == '-m pytest tests/cores -k a gate\n'
  assert out.returncode == 1


def run_all(checkout, *args, **environment):
  return subprocess.run(
    [checkout / 'launch/test.sh', *args],
    env={'PATH': '/usr/bin:/bin', 'FAILS': 'nothing', **environment},
    capture_output=True,
    text=True,
    stdin=subprocess.DEVNULL,
  )


def summary(out):
  return out.stdout.partition('=== summary\n')[2].splitlines()
