"""Runs a job of `trainer.py` under the launcher's supervisor.

  python -m tests.faults.launcher GRACE ATTEMPTS WORKDIR [FLAG...]

ATTEMPTS is JSON: for each attempt, the fault of each process; the last one is
repeated. There is at most one restart. Every message of the launcher begins
with the time. This is a process of its own, as the launcher is, because a
process that has started JAX must not be forked.
"""

import json
import os
import sys
import time

from launch import job
from launch import local
from launch import processes


def main(grace, attempts, *arguments):
  """Returns the exit code of the job."""
  attempts = json.loads(attempts)

  def log(line):
    original(f'{time.monotonic()} {line}')

  original, job.log = job.log, log

  def commands(slot):
    del slot
    faults = attempts.pop(0) if len(attempts) > 1 else attempts[0]
    flags = os.environ['XLA_FLAGS']
    place = [f'localhost:{local._free_port()}', str(len(faults))]
    return [
        [
            'env',
            f'XLA_FLAGS={flags} --xla_force_host_platform_device_count=1',
            sys.executable, '-W', 'error', '-m', 'tests.faults.trainer',
            arguments[0], fault, *arguments[1:], *place, str(rank),
        ]
        for rank, fault in enumerate(faults)
    ]  # fmt: skip

  supervisor = processes.Supervisor(
    {'': commands},
    slots=1,
    max_restarts=1,
    grace=float(grace),
  )
  (code,) = supervisor.run().values()
  return code


if __name__ == '__main__':
  sys.exit(main(*sys.argv[1:]))
