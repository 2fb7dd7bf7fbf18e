"""Faults of runs whose workdir is in a bucket, on a storage emulator."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from rmc_jax.training import bucket
from rmc_jax.training import lease
from tests.faults import drills
from tests.training import buckets
from tests.training import jobs
from tests.training.test_loop import metrics_of

pytestmark = [
  pytest.mark.slow,
  pytest.mark.multiprocess,
  pytest.mark.parametrize('scheme', ['gs'], indirect=True),
]
FLAGS = ['--config.ballast=1000000']  # 4 MB that nothing compresses.


def contents(objects):
  """Returns name -> content of all objects but the lock."""
  return {
    name: objects.read(name).result().value
    for name in buckets.names(objects) - {lease.FILE_NAME}
  }


@pytest.fixture(scope='module')
def complete_run(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('complete')
  ((code, output),) = drills.run(workdir, 'none', flags=FLAGS)
  assert code == 0, output
  return workdir


@pytest.mark.parametrize('milliseconds', [20, 300])
def test_killed_in_a_save_it_resumes_at_the_last_complete_checkpoint(
  place, objects, complete_run, milliseconds
):
  fault = f'die_{milliseconds}_ms_into_save@20'
  ((code, output),) = drills.run(place, fault, flags=FLAGS)
  assert code == -signal.SIGKILL, output
  steps = re.findall(
    r'checkpoints/(\d+)/manifest.json', '\n'.join(contents(objects))
  )
  ((code, output),) = drills.run(place, 'none', flags=FLAGS)
  assert code == 0, output
  assert 'for a sign that it is alive' in output
  resumed = drills.resumed_at(output)
  assert resumed == (max(map(int, steps)) if steps else None), output
  drills.assert_same(place, complete_run)
  assert lease.FILE_NAME not in buckets.names(objects)


def test_stopped_run_leaves_everything_in_the_bucket(place, complete_run):
  ((code, output),) = drills.run(place, 'sigterm@7', flags=FLAGS)
  assert code == 75, output
  stopped = int(re.search(r'Stopped at step (\d+) of 30', output)[1])
  assert f'is saved in {place}.' in output
  ((code, output),) = drills.run(place, 'none', flags=FLAGS)
  assert code == 0, output
  assert drills.resumed_at(output) == stopped
  with bucket.as_folder(place, checkpoints=True) as folder:
    assert drills.digests(folder) == drills.digests(complete_run)
    assert metrics_of(folder) == metrics_of(complete_run)


def test_flipped_byte_falls_back_to_the_previous_checkpoint(
  place, objects, complete_run
):
  ((code, output),) = drills.run(place, 'none', flags=FLAGS)
  assert code == 0, output
  name, content = max(
    (each for each in contents(objects).items() if '/30/' in each[0]),
    key=lambda each: len(each[1]),
  )
  damaged = bytearray(content)
  damaged[len(damaged) // 2] ^= 0x20
  objects.write(name, bytes(damaged)).result()
  ((code, output),) = drills.run(place, 'none', flags=FLAGS)
  assert code == 0, output
  assert drills.resumed_at(output) == 20
  drills.assert_same(place, complete_run)
  assert (
    'was changed'
    in contents(objects)['checkpoints/quarantined/30.txt'].decode()
  )
  moved = name.replace('checkpoints', 'checkpoints/quarantined')
  assert contents(objects)[moved] == bytes(damaged)


def test_second_run_is_refused_and_changes_nothing(place, objects):
  with subprocess.Popen(
    [sys.executable, *drills.PROGRAM, place, 'sleep@25'], cwd=jobs.ROOT
  ) as first:
    try:
      deadline = time.monotonic() + 120
      while 'checkpoints/10/manifest.json' not in buckets.names(objects):
        assert time.monotonic() < deadline
        time.sleep(0.2)
      time.sleep(12)  # Until the files that changed since have been copied.
      before = contents(objects)
      flags = ['--config.outputs=9']
      ((code, output),) = drills.run(place, 'none', flags=flags)
      assert code == 77, output
      assert f'Another process is training in {place}' in output
      assert contents(objects) == before
      assert first.poll() is None
    finally:
      first.kill()
  # Another configuration is refused once the lock is free.
  ((code, output),) = drills.run(place, 'none', flags=flags)
  assert code == 77, output
  assert f'{place} holds a run of another configuration' in output
  assert contents(objects) == before
  assert json.loads(before['config.json'])['config']['outputs'] != 9
