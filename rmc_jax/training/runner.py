"""Runs the training loop with a locked workdir, signals and a watchdog."""

from collections.abc import Callable
import contextlib
import pathlib
import tempfile
import time

import jax

from rmc_jax.errors import ConfigurationError
from rmc_jax.errors import Preempted
from rmc_jax.training import bucket
from rmc_jax.training import distributed
from rmc_jax.training import parallel
from rmc_jax.training.checkpoint import check_directory
from rmc_jax.training.checkpoint import Checkpointer
from rmc_jax.training.lock import acquire_lock
from rmc_jax.training.loop import Loop
from rmc_jax.training.preemption import Preemption
from rmc_jax.training.progress import print_line
from rmc_jax.training.report import NullReport
from rmc_jax.training.report import Report
from rmc_jax.training.run import Experiment
from rmc_jax.training.run import RunConfig
from rmc_jax.training.state import count_parameters
from rmc_jax.training.state import TrainState
from rmc_jax.training.watchdog import Watchdog

CHECKPOINTS = 'checkpoints'
_SECONDS_BETWEEN_LINES = 10.0


def train(
  workdir: str | pathlib.Path,
  experiment: Experiment,
  run: RunConfig,
  *,
  devices: parallel.Devices = None,
) -> TrainState:
  """Trains in `workdir` with a `Runner` of its own; see `Runner.train`."""
  with Runner(workdir) as runner:
    return runner.train(experiment, run, devices=devices)


class Runner:
  """A context that locks the workdir, handles signals and runs the watchdog.

  Args:
    workdir: a folder, created if missing, or the URL of one in a bucket, such
      as gs://bucket/run, see `bucket`. Only the primary process writes to it.
    watchdog_seconds: see `Watchdog`.
    started: the time of day when the program began; None for now.

  Raises:
    ConfigurationError: `workdir` is a URL that is not supported, or contains
      one of the characters *?[. On entering, another process is training there;
      nothing there has been changed.

  Attributes:
    location: `workdir` as given.
    workdir: the folder in which to read and write: a temporary one for a
      bucket, empty in all processes but the primary one.
  """

  def __init__(
    self,
    workdir: str | pathlib.Path,
    *,
    watchdog_seconds: float | None = None,
    started: float | None = None,
  ):
    self.location = str(workdir)
    self.workdir = pathlib.Path(workdir)
    self._in_bucket = bucket.is_bucket(workdir)
    check_directory(workdir if self._in_bucket else self.workdir.absolute())
    self._on_checkpoint: Callable[[], None] = lambda: None
    self._started = time.time() if started is None else started
    self._watchdog = Watchdog(watchdog_seconds)
    self._preemption = Preemption()
    self._contexts = contextlib.ExitStack()
    self._last_line = time.monotonic()

  @property
  def is_primary(self) -> bool:
    """Whether this process writes files and prints."""
    return distributed.is_primary()

  def __enter__(self) -> 'Runner':
    with contextlib.ExitStack() as contexts:
      # First, so that a signal does not end the copy to a bucket.
      contexts.enter_context(self._preemption)
      contexts.enter_context(self._watchdog)
      # A first collective: those that wait for the lock may wait for long.
      distributed.check_same('workdir', self.location)
      distributed.from_primary(lambda: self._lock(contexts))
      if self._in_bucket and not self.is_primary:
        folder = contexts.enter_context(tempfile.TemporaryDirectory())
        self.workdir = pathlib.Path(folder)
      self._contexts = contexts.pop_all()
    return self

  def __exit__(self, *exception) -> None:
    self._contexts.__exit__(*exception)

  def _lock(self, contexts: contextlib.ExitStack) -> None:
    """Locks the workdir until `contexts` end, and copies one in a bucket."""
    if self._in_bucket:
      mirror = contexts.enter_context(bucket.mirrored(self.location))
      self.workdir, self._on_checkpoint = mirror.folder, mirror.wake
    else:
      contexts.enter_context(acquire_lock(self.workdir))

  def train(
    self,
    experiment: Experiment,
    run: RunConfig,
    *,
    devices: parallel.Devices = None,
  ) -> TrainState:
    """Trains to `run.num_steps`, from the newest good checkpoint if any.

    Every process of the job calls it with the same arguments. The workdir gets
    `checkpoints/`, `metrics.jsonl`, `goodput.jsonl` and TensorBoard events.
    Returns the trained state, on the devices.

    Raises:
      Preempted: a signal asked to stop; the state is saved.
      Diverged: `run.nonfinite` ends the run. The metrics are saved, and the
        state too if the last call made progress.
      RuntimeError: the devices no longer hold the same state.
      ConfigurationError: the checkpoints are of another model or optimiser, or
        `experiment.update` does not make `run.updates_per_call` updates.
      ValueError: a field of `run` is out of range.
      SaveFailed: a checkpoint could not be written.
    """
    run.validate()
    started, self._started = self._started, time.time()
    folder = self.workdir / CHECKPOINTS
    with Checkpointer(
      folder, keep=run.keep_checkpoints, on_complete=self._on_checkpoint
    ) as saver:
      loop = Loop(
        self.location,
        experiment,
        run,
        saver,
        self._preemption,
        self._watchdog,
        devices,
      )
      if self._is_done(loop.step, run):
        return loop.state
      report = NullReport()
      if self.is_primary:
        report = Report(self.workdir, loop.step, run.num_steps, started)
      where = f'resuming at step {loop.step} of ' if loop.step else ''
      report.print(
        f'{self.location}: {_count_parameters(loop.state):,} parameters, '
        f'{jax.device_count()} devices, {where}{run.num_steps} updates.'
      )
      source = experiment.source
      if loop.step and source is not None and not source.reproducible:
        report.print(
          'The data source is not reproducible: the run continues, but not bit '
          'for bit as it would have without the stop.'
        )
      state = loop.train(report)
      if loop.step < run.num_steps:
        raise Preempted(
          f'Stopped at step {loop.step} of {run.num_steps}; everything up to '
          f'step {loop.saved} is saved in {self.location}. The same command '
          'resumes from there.'
        )
      return state

  def _is_done(self, step: int, run: RunConfig) -> bool:
    """Returns whether `step` ends the run; checks that calls can reach it."""
    if step < run.num_steps and (run.num_steps - step) % run.updates_per_call:
      raise ConfigurationError(
        f'num_steps {run.num_steps} cannot be reached from step {step} by '
        f'calls of {run.updates_per_call} updates; choose {step} plus a '
        f'multiple of {run.updates_per_call}.'
      )
    if step >= run.num_steps and self.is_primary:
      print_line(f'{self.location} is done: {step} of {run.num_steps} updates.')
    return step >= run.num_steps

  def progress(self, what: str, done: int, total: int) -> None:
    """A `progress_fn` for long work before or after training.

    Restarts the watchdog, prints a line now and then, and stops the program if
    a signal asked for it. A `total` of 0 is unknown.

    Raises:
      Preempted: a signal asked to stop. Not raised in a job of several
        processes, which would have to agree on it.
    """
    self._watchdog.heartbeat()
    amount = f'{done:,} of {total:,}' if total else f'{done:,}'
    if jax.process_count() == 1 and self._preemption.requested():
      raise Preempted(
        f'Stopped at {what}: {amount}. The trained state is saved; the same '
        'command does this again.'
      )
    now = time.monotonic()
    if self.is_primary and now - self._last_line >= _SECONDS_BETWEEN_LINES:
      self._last_line = now
      print_line(f'{what}: {amount}')


def _count_parameters(state: TrainState) -> int:
  """Returns the trained parameters, of all members if it is an ensemble."""
  if not isinstance(state.carry, TrainState):
    return count_parameters(state.params)
  # A process holds the members of its own devices.
  processes = jax.device_count() // jax.local_device_count()
  return processes * count_parameters(state.carry.params)
