"""Tests rmc_jax/training/watchdog.py with processes that hang."""

import subprocess
import sys
import time

import pytest

from tests.training.jobs import ROOT

HANGS = """
import threading, time
from rmc_jax.training.watchdog import Watchdog

def stuck_elsewhere():
  time.sleep(60)

def stuck_here():
  {stuck}

threading.Thread(target=stuck_elsewhere, daemon=True).start()
with Watchdog({seconds}) as watchdog:
  for _ in range(3):
    time.sleep(0.4)
    watchdog.heartbeat()
  stuck_here()
print('finished')
"""


def run(stuck, seconds):
  start = time.monotonic()
  ended = subprocess.run(
      [sys.executable, '-c', HANGS.format(stuck=stuck, seconds=seconds)],
      cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
  )  # fmt: skip
  return ended, time.monotonic() - start


@pytest.mark.slow  # Every process imports JAX.
@pytest.mark.parametrize(
  'stuck',
  [
    'time.sleep(60)',
    # Holds Python's interpreter lock.
    'import re; re.match("(a+)+$", "a" * 40 + "b")',
  ],
)
def test_hanging_process_ends_with_all_its_stacks(stuck):
  ended, seconds = run(stuck, seconds=1.0)
  assert ended.returncode == 1
  assert seconds < 30
  assert 'in stuck_here' in ended.stderr
  assert 'in stuck_elsewhere' in ended.stderr
  assert 'finished' not in ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
  ('stuck', 'seconds'), [('pass', 1.0), ('time.sleep(2)', None)]
)
def test_process_with_heartbeats_or_without_a_watchdog_finishes(stuck, seconds):
  ended, _ = run(stuck, seconds)
  assert ended.returncode == 0, ended.stderr
  assert 'finished' in ended.stdout
