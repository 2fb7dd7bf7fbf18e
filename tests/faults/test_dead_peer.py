"""Fault 5: one process of a job is killed."""

import pytest

from rmc_jax.training import goodput
from tests.faults import drills
from tests.training.test_loop import metrics_of


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize('rank', [0, 1])
def test_survivor_exits_in_seconds_and_the_launcher_restarts_both(
  tmp_path, uninterrupted, rank
):
  faults = ['none', 'none']
  faults[rank] = 'die@25'
  code, out = drills.supervise(tmp_path, faults, ['none', 'none'])
  assert code == 0, out
  killed = float((tmp_path / 'fault_time').read_text())
  drills.time_logged(out, f'process {rank} ended with -9 (SIGKILL)')
  # The survivor exits by itself.
  assert 'killing the other processes' not in out
  seconds = drills.time_logged(out, 'restart 1 of 1') - killed
  assert seconds < 15, out
  assert f'[{1 - rank}] Traceback' in out, out
  assert drills.lost_at_most_one_save(out), out
  assert drills.digests(tmp_path) == drills.digests(uninterrupted)
  assert metrics_of(tmp_path) == metrics_of(uninterrupted)
  # The updates after the checkpoint are repeated, and counted as lost.
  assert drills.steps_loaded(tmp_path) == [
    *range(26),
    *range(drills.resumed_at(out), 30),
  ]
  starts = goodput.read_ledger(tmp_path)
  total = goodput.summarize(starts)
  assert total['down'] > 0
  if rank == 1:  # If killed, rank 0 has not written the last seconds.
    assert total['lost'] > 0
  wall = starts[-1]['until'] - starts[0]['since']
  assert sum(total.values()) == pytest.approx(wall, rel=0.02)
