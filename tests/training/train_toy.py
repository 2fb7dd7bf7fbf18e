"""Trains the toy model and kills itself at a chosen moment.

  python -m tests.training.train_toy WORKDIR MOMENT STEP [ADDRESS COUNT ID]

MOMENT is one of `MOMENTS`: the process dies the first time it gets there at
STEP or later. ADDRESS COUNT ID make it one process of a job. The exit code is
that of the error that `train` raises.
"""

import os
import signal
import sys
import threading

from rmc_jax.errors import Preempted
from rmc_jax.training import distributed
from rmc_jax.training import manifest
from rmc_jax.training.checkpoint import Checkpointer
from rmc_jax.training.log import MetricsLog
from rmc_jax.training.progress import print_line
from tests.training import toy_regression as toy


def main(workdir, moment, step, *job):
  if job:
    distributed.initialize(job[0], int(job[1]), int(job[2]))
  update = MOMENTS[moment](int(step)) or toy.update()
  code = 0
  try:
    toy.run(workdir, update=update)
  except Preempted as preempted:
    print_line(str(preempted))
    code = preempted.exit_code
  distributed.shutdown()
  sys.exit(code)


def never(step):
  del step


def before_update(step):
  """Kills the process between two calls."""
  return _before_update(step, kill)


def in_line(step):
  """Kills the process after half a line of metrics is written."""

  def write(log, at, *metrics):
    if at >= step:
      log._file.write(f'{{"step": {at}, "train": {{"lo')
      log._file.flush()
      kill()
    original(log, at, *metrics)

  original, MetricsLog.write = MetricsLog.write, write


def in_save(step):
  """Kills the process as soon as the save has started."""
  _after_save(step, kill)


def later_in_save(step):
  """Kills the process shortly before or after Orbax commits the step."""
  _after_save(step, lambda: threading.Timer(0.02, kill).start())


def before_manifest(step):
  """Kills the process between Orbax's commit and the manifest."""

  def write(directory, at, *contents):
    if at >= step:
      (directory / (manifest.FILE_NAME + '.tmp')).write_text('{"files": {"a')
      kill()
    original(directory, at, *contents)

  original, manifest.write = manifest.write, write


def kill():
  os.kill(os.getpid(), signal.SIGKILL)


def _before_update(step, act):
  def update(state, batch=None):
    nonlocal act
    if act is not None and int(state.step) >= step:
      act()
      act = None
    return toy.update()(state, batch)

  return update


def _after_save(step, act):
  def save(checkpointer, at, *contents):
    original(checkpointer, at, *contents)
    if at >= step:
      act()

  original, Checkpointer.save = Checkpointer.save, save


MOMENTS = {
  moment.__name__: moment
  for moment in (
    never,
    before_update,
    in_line,
    in_save,
    later_in_save,
    before_manifest,
  )
}

if __name__ == '__main__':
  main(*sys.argv[1:])
