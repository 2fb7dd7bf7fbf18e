"""Fault 9: a bit flips in the weights on one device of a job."""

import pytest

from tests.faults import drills
from tests.training.test_loop import metrics_of


@pytest.mark.slow
@pytest.mark.multiprocess
def test_it_is_noticed_before_the_next_save_and_undone(tmp_path, uninterrupted):
  code, out = drills.supervise(
      tmp_path, ['none', 'flip@22'], ['none', 'none'],
      flags=['--config.check_replicas_every=6'],
  )  # fmt: skip
  assert code == 0, out
  drills.when(out, 'ended with 1 (crash); restart 1 of 1')
  # Both processes name the leaf; Adam's averages have followed it by then.
  for rank in range(2):
    line = next(
      line
      for line in out.splitlines()
      if line.startswith(f'[{rank}] RuntimeError: The devices no longer')
    )
    assert ".params['linear']['w']" in line
  # At the check of step 24, an update after the flip.
  assert drills.resumed_late(out), out
  assert drills.asked(tmp_path) == [
    *range(24),
    *range(drills.resumed_at(out), 30),
  ]
  assert drills.digests(tmp_path) == drills.digests(uninterrupted)
  assert metrics_of(tmp_path) == metrics_of(uninterrupted)
