"""Fault 8: one process of a job cannot read its batch."""

import pytest

from tests.faults import drills
from tests.training.test_loop import metrics_of


@pytest.mark.slow
@pytest.mark.multiprocess
def test_it_ends_the_job_with_the_readers_words_and_within_the_budget(
  tmp_path, uninterrupted
):
  code, out = drills.supervise(tmp_path, ['none', 'unreadable@25'])
  assert code == 1, out
  words = '[1] ValueError: shard 3, record 25: the checksum is wrong'
  assert out.count(words) == 2  # At the first start and at the one more.
  assert out.count('[1] This was the batch of step 25.') == 2
  drills.when(out, 'not started again after 1 restarts')
  # Nobody went on without it.
  for process in range(2):
    assert max(drills.asked(tmp_path, process)) == 25

  for code, said in drills.run(tmp_path, 'none', 'none'):
    assert code == 0, said
  assert drills.digests(tmp_path) == drills.digests(uninterrupted)
  assert metrics_of(tmp_path) == metrics_of(uninterrupted)
