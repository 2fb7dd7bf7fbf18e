"""Tests the set-up of launch/parity.sh with fake Pythons and pip."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Takes its version from its name, copies itself for `venv`, and makes folders
# for `pip install`.
PYTHON = """#!/bin/bash
echo "$(basename "$0") $*" >>"$LOG"
case "$*" in
  *version_info*) basename "$0" | sed 's/python//' ;;
  '-m venv '*)
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    ;;
  *'--target '*) mkdir -p "$(sed 's/.*--target //; s/ .*//' <<<"$*")/sonnet" ;;
esac
"""


@pytest.fixture
def set_up(tmp_path):
  """Runs `launch/parity.sh --setup-only`; returns the log of the Pythons."""
  (tmp_path / 'launch').mkdir()
  for path in (ROOT / 'launch').glob('parity*'):
    shutil.copy(path, tmp_path / 'launch')
  find = tmp_path / 'launch/find_python.sh'
  find.write_text('#!/bin/bash\nexit 1\n')
  find.chmod(0o755)
  programs = tmp_path / 'bin'
  programs.mkdir()
  for version in ('3.7', '3.11'):
    (programs / f'python{version}').write_text(PYTHON)
    (programs / f'python{version}').chmod(0o755)
  (programs / 'uname').write_text('#!/bin/bash\necho x86_64\n')
  (programs / 'uname').chmod(0o755)

  def run(**environment):
    log = tmp_path / 'log'
    log.write_text('')
    subprocess.run(
      [tmp_path / 'launch/parity.sh', '--setup-only'],
      cwd=tmp_path,
      env={
        'PATH': f'{programs}:{os.environ["PATH"]}',
        'LOG': str(log),
        **environment,
      },
      capture_output=True,
      check=True,
    )
    return log.read_text()

  return run


def test_python_3_7_is_preferred(set_up):
  assert 'python3.7 -m venv' in set_up()
  assert '-m venv' not in set_up()


def test_another_python_is_kept_until_reference_python_changes(set_up):
  elsewhere = {'RMC_PARITY_HOME': 'elsewhere'}
  did = set_up(REFERENCE_PYTHON='python3.11', **elsewhere)
  assert 'python3.11 -m venv elsewhere/reference' in did
  assert '-m venv' not in set_up(**elsewhere)
  assert 'python3.7 -m venv' in set_up(
    REFERENCE_PYTHON='python3.7', **elsewhere
  )
