"""Fault 5: one process of a job is killed."""

import pytest

from rmc_jax.training import goodput
from tests.faults import drills
from tests.training.test_loop import metrics_of


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize('rank', [0, 1])
def test_the_survivor_leaves_in_seconds_and_the_launcher_starts_both(
  tmp_path, uninterrupted, rank
):
  faults = ['none', 'none']
  faults[rank] = 'die@25'
  code, out = drills.supervise(tmp_path, faults, ['none', 'none'])
  assert code == 0, out
  killed = float((tmp_path / 'harmed').read_text())
  drills.when(out, f'process {rank} ended with -9 (SIGKILL)')
  # By itself: else it would have been killed, and that been told.
  assert 'killing the others' not in out
  seconds = drills.when(out, 'restart 1 of 1') - killed
  assert seconds < 15, out
  assert f'[{1 - rank}] Traceback' in out, out
  assert drills.resumed_late(out), out
  assert drills.digests(tmp_path) == drills.digests(uninterrupted)
  assert metrics_of(tmp_path) == metrics_of(uninterrupted)
  # What came after the checkpoint was made twice, and is counted as such.
  assert drills.asked(tmp_path) == [
    *range(26),
    *range(drills.resumed_at(out), 30),
  ]
  starts = goodput.read_ledger(tmp_path)
  total = goodput.summarize(starts)
  assert total['down'] > 0
  if rank == 1:  # Rank 0, killed, has kept the books to some seconds before.
    assert total['lost'] > 0
  wall = starts[-1]['until'] - starts[0]['since']
  assert sum(total.values()) == pytest.approx(wall, rel=0.02)
