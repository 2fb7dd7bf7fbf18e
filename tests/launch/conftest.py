"""Fixtures for the tests of several launchers."""

import shlex
import shutil
import sys

import pytest

from launch import job
from tests.launch.programs import write_program


@pytest.fixture(scope='session')
def checkout(tmp_path_factory):
  """A copy of this checkout whose .venv runs this Python."""
  root = tmp_path_factory.mktemp('checkout')
  for folder in ('rmc_jax', 'experiments', 'launch'):
    shutil.copytree(
      job.ROOT / folder, root / folder, ignore=shutil.ignore_patterns('*.pyc')
    )
  write_program(root / 'launch/setup.sh', 'exit 0')
  python = shlex.quote(sys.executable)
  write_program(root / '.venv/bin/python', f'exec {python} "$@"')
  return root
