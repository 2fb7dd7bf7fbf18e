"""Tests rmc_jax/training/watchdog.py, on processes that really hang."""

import subprocess
import sys
import time

import pytest

from tests.training.jobs import ROOT

HANGS = """
import threading, time
from rmc_jax.training import watchdog

def stuck_elsewhere():
  time.sleep(60)

def stuck_here():
  {stuck}

threading.Thread(target=stuck_elsewhere, daemon=True).start()
with watchdog.watch({seconds}):
  for _ in range(3):
    time.sleep(0.4)
    watchdog.beat()
  stuck_here()
print('went on')
"""


def run(stuck, seconds):
  start = time.monotonic()
  ended = subprocess.run(
      [sys.executable, '-c', HANGS.format(stuck=stuck, seconds=seconds)],
      cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
  )  # fmt: skip
  return ended, time.monotonic() - start


@pytest.mark.slow  # It imports JAX, four times.
@pytest.mark.parametrize(
  'stuck',
  [
    'time.sleep(60)',
    # Holds Python's lock all the while.
    'import re; re.match("(a+)+$", "a" * 40 + "b")',
  ],
)
def test_a_hanging_process_is_ended_with_all_its_stacks(stuck):
  ended, seconds = run(stuck, seconds=1.0)
  assert ended.returncode == 1
  assert seconds < 30
  assert 'in stuck_here' in ended.stderr
  assert 'in stuck_elsewhere' in ended.stderr
  assert 'went on' not in ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
  ('stuck', 'seconds'), [('pass', 1.0), ('time.sleep(2)', None)]
)
def test_others_are_left_alone(stuck, seconds):
  ended, _ = run(stuck, seconds)
  assert ended.returncode == 0, ended.stderr
  assert 'went on' in ended.stdout
