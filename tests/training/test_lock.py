"""Tests rmc_jax/training/lock.py."""

import errno
import fcntl
import re
import subprocess
import sys

import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import lock
from tests.training import jobs

HOLD = """
import pathlib, sys
from rmc_jax.training import lock
with lock.acquire_lock(pathlib.Path(sys.argv[1])):
  print('held', flush=True)
  sys.stdin.read()
"""


def test_second_holder_raises_until_the_first_releases(tmp_path):
  workdir = tmp_path / 'new' / 'run'
  for _ in range(2):
    with lock.acquire_lock(workdir):
      message = f'training in {re.escape(str(workdir))}'
      with (
        pytest.raises(ConfigurationError, match=message),
        lock.acquire_lock(workdir),
      ):
        pass
      with lock.acquire_lock(tmp_path / 'other'):
        pass


def test_file_system_without_locks_raises(tmp_path, monkeypatch):
  def flock(file, operation):
    raise OSError(errno.ENOLCK, 'No locks available')

  monkeypatch.setattr(fcntl, 'flock', flock)
  with (
    pytest.raises(
      ConfigurationError, match='does not support file locks.*No l'
    ),
    lock.acquire_lock(tmp_path),
  ):
    pass


@pytest.mark.slow
def test_killed_process_releases_the_lock(tmp_path):
  with subprocess.Popen(
    [sys.executable, '-c', HOLD, str(tmp_path)],
    cwd=jobs.ROOT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as child:
    try:
      assert child.stdout.readline() == 'held\n'
      with (
        pytest.raises(ConfigurationError, match='Another process'),
        lock.acquire_lock(tmp_path),
      ):
        pass
    finally:
      child.kill()
      child.wait()
  with lock.acquire_lock(tmp_path):
    pass
