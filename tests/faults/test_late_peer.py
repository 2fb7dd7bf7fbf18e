"""Fault 11: one process of a job starts later than the other."""

import pytest

from tests.faults import drills


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize('late', [0, 1])
def test_initialization_timeout_bounds_the_wait(tmp_path, uninterrupted, late):
  faults = ['none', 'none']
  faults[late] = 'late@8'
  ended = drills.run(tmp_path, *faults, flags=['--initialization_timeout=30'])
  assert [code for code, _ in ended] == [0, 0], ended
  assert drills.digests(tmp_path) == drills.digests(uninterrupted)


@pytest.mark.slow
@pytest.mark.multiprocess
def test_job_is_aborted_after_the_timeout(tmp_path):
  flags = ['--initialization_timeout=2']
  (code, output), _ = drills.run(tmp_path, 'none', 'late@15', flags=flags)
  assert code == -6, output  # JAX aborts; a shell calls it 134.
  assert not (tmp_path / 'checkpoints').exists()
