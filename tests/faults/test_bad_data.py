"""Fault 8: one process of a job fails to read its batch."""

import pytest

from tests.faults import drills
from tests.training.test_loop import metrics_of


@pytest.mark.slow
@pytest.mark.multiprocess
def test_data_error_ends_the_job_after_its_restarts(tmp_path, uninterrupted):
  code, out = drills.supervise(tmp_path, ['none', 'unreadable@25'])
  assert code == 1, out
  error = '[1] ValueError: shard 3, record 25: the checksum is wrong'
  assert out.count(error) == 2  # One per start.
  assert out.count('[1] This was the batch of step 25.') == 2
  drills.time_logged(out, 'giving up after 1 restarts')
  # No process continues without the batch.
  for process in range(2):
    assert max(drills.steps_loaded(tmp_path, process)) == 25

  for code, output in drills.run(tmp_path, 'none', 'none'):
    assert code == 0, output
  assert drills.digests(tmp_path) == drills.digests(uninterrupted)
  assert metrics_of(tmp_path) == metrics_of(uninterrupted)
