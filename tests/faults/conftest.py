"""What several of these tests compare with."""

import pytest

from tests.faults import drills


@pytest.fixture(scope='session')
def uninterrupted(tmp_path_factory):
  """The workdir of a job of two processes that nothing happened to."""
  workdir = tmp_path_factory.mktemp('uninterrupted')
  for code, said in drills.run(workdir, 'none', 'none'):
    assert code == 0, said
  return workdir
