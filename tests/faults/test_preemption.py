"""Fault 1: one process of a job receives SIGTERM, at a random step."""

import random
import re

import pytest

from tests.faults import drills
from tests.training.test_loop import metrics_of


@pytest.mark.slow
@pytest.mark.multiprocess
def test_preempted_job_resumes_bit_for_bit(tmp_path, uninterrupted):
  step, rank = random.randrange(1, 20), random.randrange(2)
  faults = ['none', 'none']
  faults[rank] = f'sigterm@{step}'
  ended = drills.run(tmp_path, *faults)
  assert [code for code, _ in ended] == [75, 75], (faults, ended)
  (stopped,) = {
    int(re.search(r'Stopped at step (\d+) of 30', output)[1])
    for _, output in ended
  }
  assert step < stopped < 30, faults
  assert drills.saved_steps(tmp_path)[-1] == stopped
  ended = drills.run(tmp_path, 'none', 'none')
  assert [code for code, _ in ended] == [0, 0], (faults, ended)
  assert drills.resumed_at(ended[0][1]) == stopped
  assert drills.digests(tmp_path) == drills.digests(uninterrupted), faults
  assert metrics_of(tmp_path) == metrics_of(uninterrupted), faults
  for process in range(2):
    # Each batch is loaded once, in order, over both starts.
    assert drills.steps_loaded(tmp_path, process) == list(range(30)), faults
