"""Runs `trainer.py` alone, as a job or under the launcher, and reads runs."""

import json
import os
import re
import signal
import subprocess
import sys
import time

from rmc_jax.training import bucket
from rmc_jax.training import manifest
from tests.training import jobs
from tests.training.test_loop import metrics_of

PROGRAM = ('-W', 'error', '-m', 'tests.faults.trainer')
_TIMEOUT = 300  # Seconds until a process is killed.


def run(workdir, *faults, flags=(), devices=1):
  """Trains in `workdir` with one process per fault; several form a job.

  Returns:
    Exit code and output of each process.
  """
  return jobs.run(
    PROGRAM,
    [[workdir, fault, *flags] for fault in faults],
    devices=devices,
    timeout=_TIMEOUT,
  )


def supervise(workdir, *attempts, flags=(), grace=15.0):
  """Runs a job under the launcher, with at most one restart.

  Args:
    workdir: folder of the run.
    *attempts: for each attempt, the fault of each process; the last one is
      repeated.
    flags: flags of the trainer.
    grace: seconds that the other processes have after one has failed.

  Returns:
    Exit code, and the output of the launcher and the processes.
  """
  with subprocess.Popen(
      [
          sys.executable, '-m', 'tests.faults.launcher', str(grace),
          json.dumps(attempts), str(workdir), *flags,
      ],
      cwd=jobs.ROOT,
      env=os.environ | {'PYTHONPATH': str(jobs.ROOT)},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
  ) as launcher:  # fmt: skip
    try:
      output, _ = launcher.communicate(timeout=_TIMEOUT)
    except BaseException:
      # A stuck process ignores the first signal. After the second, the launcher
      # kills the process group, whose id only the launcher has.
      for _ in range(2):
        launcher.send_signal(signal.SIGINT)
        time.sleep(1)
      launcher.kill()
      raise
  return launcher.returncode, output


def time_logged(output, message):
  """Returns the time.monotonic() of the launcher's first such message."""
  found = re.search(rf'^launch: (\S+) .*{re.escape(message)}', output, re.M)
  assert found, output
  return float(found[1])


def digests(workdir, step=30):
  """Returns path -> digest, for every array of a checkpoint."""
  leaves = manifest.verify(workdir / 'checkpoints' / str(step))['leaves']
  return {path: leaf['digest'] for path, leaf in leaves.items()}


def assert_same(place, complete):
  """Asserts that a finished run, perhaps in a bucket, equals `complete`."""
  with bucket.as_folder(place, checkpoints=True) as folder:
    assert digests(folder) == digests(complete)
    assert metrics_of(folder) == metrics_of(complete)
    assert saved_steps(folder) == [10, 20, 30]


def saved_steps(workdir):
  """Returns the steps that have a checkpoint, sorted."""
  return sorted(
    int(path.name)
    for path in (workdir / 'checkpoints').iterdir()
    if path.name.isdigit()
  )


def steps_loaded(workdir, process=0):
  """Returns the steps whose batches a process loaded, over all its starts."""
  lines = (workdir / f'steps_{process}').read_text().split()
  return [int(line) for line in lines]


def lost_at_most_one_save(output):
  """Returns whether a run that failed near step 25 resumes at step 10 or 20.

  The save of step 20 waits for that of step 10, but may be incomplete itself.
  """
  return resumed_at(output) in (10, 20)


def resumed_at(output):
  """Returns the step at which a run resumes; None for a new run."""
  found = re.search(r'resuming at step (\d+) of', output)
  return int(found[1]) if found else None
