"""What the tests of several launchers share."""

import shlex
import shutil
import sys

import pytest

from launch import job


@pytest.fixture(scope='session')
def checkout(tmp_path_factory):
  """This checkout with an environment that needs no setting up."""
  root = tmp_path_factory.mktemp('checkout')
  for room in ('rmc_jax', 'experiments', 'launch'):
    shutil.copytree(
      job.ROOT / room, root / room, ignore=shutil.ignore_patterns('*.pyc')
    )
  (root / 'launch/setup.sh').write_text('#!/bin/sh\nexit 0\n')
  (root / '.venv/bin').mkdir(parents=True)
  program = root / '.venv/bin/python'
  program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
  program.chmod(0o755)
  return root
