"""Starts `trainer.py` alone, as a job or under the launcher; reads runs."""

import json
import os
import re
import signal
import subprocess
import sys
import time

from rmc_jax.training import manifest
from tests.training import jobs

PROGRAM = ('-W', 'error', '-m', 'tests.faults.trainer')
_LONGEST = 300  # Seconds for anything here; then it is killed.


def run(workdir, *faults, flags=(), devices=1):
  """Trains in `workdir`, one process for each fault; several are one job.

  Returns:
    Exit code and output of each.
  """
  return jobs.run(
    PROGRAM,
    [[workdir, fault, *flags] for fault in faults],
    devices=devices,
    timeout=_LONGEST,
  )


def supervise(workdir, *attempts, flags=(), grace=15.0):
  """Has the launcher bring a job to its end, with one restart at most.

  Args:
    workdir: of the job.
    *attempts: for each attempt the fault of each process; the last one stands
      for all that follow.
    flags: of the trainer.
    grace: seconds for the other processes when one has failed.

  Returns:
    Exit code and output, the launcher's own lines and those of the processes.
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
      said, _ = launcher.communicate(timeout=_LONGEST)
    except BaseException:
      # The first one asks, which a stuck process does not hear; the second one
      # has the launcher kill the whole group, which nobody else knows.
      for _ in range(2):
        launcher.send_signal(signal.SIGINT)
        time.sleep(1)
      launcher.kill()
      raise
  return launcher.returncode, said


def when(said, words):
  """When, in time.monotonic(), the launcher said it first; it must have."""
  found = re.search(rf'^launch: (\S+) .*{re.escape(words)}', said, re.M)
  assert found, said
  return float(found[1])


def digests(workdir, step=30):
  """The digest of every array of a checkpoint, by its path."""
  leaves = manifest.verify(workdir / 'checkpoints' / str(step))['leaves']
  return {path: leaf['digest'] for path, leaf in leaves.items()}


def steps_saved(workdir):
  """The steps of which there is a checkpoint, in order."""
  return sorted(
    int(path.name)
    for path in (workdir / 'checkpoints').iterdir()
    if path.name.isdigit()
  )


def asked(workdir, process=0):
  """The steps that a process was asked for a batch of, over all its starts."""
  lines = (workdir / f'asked_{process}').read_text().split()
  return [int(line) for line in lines]


def resumed_late(output):
  """Whether it goes on from one of the two checkpoints before step 25.

  That of step 10 is whole, since the save of 20 waited for it; that of step 20
  may not have come to its end.
  """
  return resumed_at(output) in (10, 20)


def resumed_at(output):
  """The step from which a run says that it goes on, None for a fresh start."""
  found = re.search(r'going on from step (\d+) of', output)
  return int(found[1]) if found else None
