"""Faults of a job of two processes, in a folder and in a bucket."""

import contextlib
import os
import pathlib
import re
import subprocess

import pytest

from rmc_jax.training import bucket
from rmc_jax.training import lease
from rmc_jax.training.lock import acquire_lock
from tests.faults import drills

pytestmark = [
  pytest.mark.slow,
  pytest.mark.multiprocess,
  pytest.mark.parametrize('scheme', ['gs'], indirect=True),
]


@pytest.fixture(params=['folder', 'bucket'])
def workdir(request, tmp_path, place):
  """A folder, or the URL of one in a bucket."""
  return place if request.param == 'bucket' else str(tmp_path / 'run')


@pytest.mark.parametrize('milliseconds', [0, 100])
def test_process_killed_while_the_other_saves_is_restarted(
  workdir, uninterrupted, milliseconds
):
  faults = ['none', f'die_{milliseconds}_ms_into_save@20']
  code, output = drills.supervise(workdir, faults, ['none', 'none'])
  assert code == 0, output
  assert drills.resumed_at(output) in (10, 20), output
  drills.assert_same(workdir, uninterrupted)


BALLAST = ['--config.ballast=500000']  # 2 MB that nothing compresses.


@pytest.fixture
def small_disk(tmp_path):
  """A file system of 3 MB; yields its folder and a function to enlarge it."""
  if os.geteuid() != 0:
    pytest.skip('only root can mount a tmpfs')
  folder = tmp_path / 'small'
  folder.mkdir()

  def mount(options):
    command = ['mount', '-t', 'tmpfs', '-o', options, 'none', str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode

  if mount('size=3m'):
    pytest.skip('a tmpfs cannot be mounted here')
  yield folder, lambda: mount('remount,size=100m')
  subprocess.run(['umount', folder], check=True)


@pytest.fixture(scope='module')
def complete_run(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('complete')
  for code, output in drills.run(workdir, 'none', 'none', flags=BALLAST):
    assert code == 0, output
  return workdir


def test_full_disk_ends_the_job_and_with_space_it_resumes(
  workdir, complete_run, small_disk, monkeypatch
):
  folder, enlarge = small_disk
  if not bucket.is_bucket(workdir):
    workdir = str(folder / 'run')
  # Runs in buckets write there first.
  monkeypatch.setenv('TMPDIR', str(folder))
  ended = drills.run(workdir, 'none', 'none', flags=BALLAST)
  assert ended[0][0] == 1, ended
  assert ended[1][0] != 0, ended
  error = r'Saving step 20 .*disk full.*: step 10\.'
  assert re.search(error, ended[0][1], re.DOTALL), ended
  enlarge()
  ended = drills.run(workdir, 'none', 'none', flags=BALLAST)
  assert [code for code, _ in ended] == [0, 0], ended
  assert drills.resumed_at(ended[0][1]) == 10
  drills.assert_same(workdir, complete_run)


def test_long_wait_for_a_lock_is_not_a_fault(
  place, objects, uninterrupted, monkeypatch
):
  # Gloo connects the processes within 30 s, or not at all.
  monkeypatch.setenv('LEASE_SECONDS', '33')
  objects.write(lease.FILE_NAME, b'{}').result()
  ended = drills.run(place, 'none', 'none')
  assert [code for code, _ in ended] == [0, 0], ended
  assert 'locked by an unknown process' in ended[0][1]
  drills.assert_same(place, uninterrupted)


def test_all_processes_refuse_a_workdir_in_use(workdir, monkeypatch):
  monkeypatch.setattr(lease, 'SECONDS', 1.0)
  with contextlib.ExitStack() as lock:
    if bucket.is_bucket(workdir):
      lock.enter_context(bucket.mirrored(workdir))
    else:
      lock.enter_context(acquire_lock(pathlib.Path(workdir)))
    ended = drills.run(workdir, 'none', 'none')
  assert [code for code, _ in ended] == [77, 77], ended
  for _, output in ended:
    assert f'Another process is training in {workdir}' in output
