"""Fault 6: one process of a job is alive but makes no progress."""

import re

import pytest

from tests.faults import drills

SECONDS = 10  # Longer than compiling takes.


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize(
  ('fault', 'killed'),
  [
    ('sleep', False),  # JAX's heartbeats continue; its watchdog ends it.
    ('stop', True),  # Its watchdog is stopped too.
  ],
)
def test_watchdog_ends_the_job_and_the_launcher_restarts_it(
  tmp_path, uninterrupted, fault, killed
):
  code, out = drills.supervise(
      tmp_path, ['none', f'{fault}@25'], ['none', 'none'],
      flags=[f'--watchdog_seconds={SECONDS}'], grace=5.0,
  )  # fmt: skip
  assert code == 0, out
  stuck = float((tmp_path / 'fault_time').read_text())
  ended = drills.time_logged(out, 'process 0 ended with 1 (crash)')
  assert SECONDS - 1 < ended - stuck < SECONDS + 10, out
  drills.time_logged(out, 'ended with 1 (crash); restart 1 of 1')
  assert ('killing the other processes' in out) == killed
  # The waiting process logs all its threads, the other one where it sleeps.
  assert len(re.findall(r'^\[0\] Thread 0x.*most recent', out, re.M)) > 1, out
  assert re.search(r'^\[0\] .* in train$', out, re.M), out
  if not killed:
    assert re.search(r'^\[1\] .*trainer\.py".* in sleep$', out, re.M), out
  assert drills.lost_at_most_one_save(out), out
  assert drills.digests(tmp_path) == drills.digests(uninterrupted)
