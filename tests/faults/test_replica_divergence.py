"""Fault 9: a bit of a weight flips on one device of a job."""

import pytest

from tests.faults import drills
from tests.training.test_loop import metrics_of


@pytest.mark.slow
@pytest.mark.multiprocess
def test_diverged_replica_is_found_before_the_next_save(
  tmp_path, uninterrupted
):
  code, out = drills.supervise(
      tmp_path, ['none', 'flip@22'], ['none', 'none'],
      flags=['--config.run.check_replicas_every=6'],
  )  # fmt: skip
  assert code == 0, out
  drills.time_logged(out, 'ended with 1 (crash); restart 1 of 1')
  # Both processes name the leaf; by then Adam's averages differ too.
  for rank in range(2):
    line = next(
      line
      for line in out.splitlines()
      if line.startswith(f'[{rank}] RuntimeError: The devices no longer')
    )
    assert ".params['linear']['w']" in line
  # The check after step 24 finds it.
  assert drills.lost_at_most_one_save(out), out
  assert drills.steps_loaded(tmp_path) == [
    *range(24),
    *range(drills.resumed_at(out), 30),
  ]
  assert drills.digests(tmp_path) == drills.digests(uninterrupted)
  assert metrics_of(tmp_path) == metrics_of(uninterrupted)
