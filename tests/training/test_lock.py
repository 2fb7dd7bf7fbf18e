"""Tests `rmc_jax.training.lock`: held by one, free as soon as that one ends."""

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
with lock.hold(pathlib.Path(sys.argv[1])):
  print('held', flush=True)
  sys.stdin.read()
"""


def test_the_second_is_refused_and_the_next_is_not(tmp_path):
  workdir = tmp_path / 'new' / 'run'
  for _ in range(2):
    with lock.hold(workdir):
      message = f'training in {re.escape(str(workdir))}'
      with (
        pytest.raises(ConfigurationError, match=message),
        lock.hold(workdir),
      ):
        pass
      with lock.hold(tmp_path / 'other'):
        pass


@pytest.mark.slow
def test_a_killed_process_lets_go(tmp_path):
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
        lock.hold(tmp_path),
      ):
        pass
    finally:
      child.kill()
      child.wait()
  with lock.hold(tmp_path):
    pass
