"""The run without faults that these tests compare with."""

import pytest

from tests.faults import drills
from tests.training.buckets import objects  # noqa: F401
from tests.training.buckets import place  # noqa: F401
from tests.training.buckets import run_name  # noqa: F401
from tests.training.buckets import scheme  # noqa: F401


@pytest.fixture(scope='session')
def uninterrupted(tmp_path_factory):
  """The workdir of a job of two processes without a fault."""
  workdir = tmp_path_factory.mktemp('uninterrupted')
  for code, output in drills.run(workdir, 'none', 'none'):
    assert code == 0, output
  return workdir
