"""Reports a run to metrics log, goodput ledger and console."""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import pathlib

from rmc_jax.training import goodput
from rmc_jax.training.log import MetricsLog
from rmc_jax.training.progress import print_line
from rmc_jax.training.progress import Progress

# Between two writes of the ledger, each of which waits for the disk.
_LEDGER_SECONDS = 2.0


class NullReport(contextlib.AbstractContextManager):
  """A report without effects, for all processes but the primary one."""

  def __exit__(self, *exception) -> None:
    pass

  def record(
    self,
    step: int,
    train: Mapping[str, float] | None,
    evaluation: Mapping[str, float] | None,
  ) -> None:
    """Shows progress; writes a line of the log if there are metrics."""

  def print(self, line: str) -> None:
    """Prints a line."""

  def enter(self, kind: str) -> str:
    """Counts the time from now on as `kind`, see `goodput.Ledger.enter`."""
    return kind

  @contextlib.contextmanager
  def timed(self, kind: str) -> Iterator[None]:
    """Counts the time within as `kind`, and then as before."""
    before = self.enter(kind)
    try:
      yield
    finally:
      self.enter(before)

  @contextlib.contextmanager
  def saving(self, step: int) -> Iterator[None]:
    """Counts a save; flushes first, so that no checkpoint precedes the log."""
    with self.timed('checkpoint'):
      self.sync(step)
      yield
    self.saved(step)

  def saved(self, step: int) -> None:
    """Records that a checkpoint of `step` has been handed to Orbax."""

  def sync(self, step: int) -> None:
    """Flushes the log and the ledger to the disk."""

  def finish(self, step: int, saved: int) -> None:
    """Like `sync`, and prints the goodput over all starts."""


class Report(NullReport):
  """The report of one start of a run, by the primary process.

  The start began at the restored `step` and the time of day `started`.
  """

  def __init__(
    self, workdir: pathlib.Path, step: int, num_steps: int, started: float
  ):
    self._workdir, self._step = workdir, step
    self._log = MetricsLog(workdir, step)
    self._progress = Progress(step, num_steps)
    self._ledger = goodput.Ledger(workdir, step, started=started)

  def __exit__(self, *exception) -> None:
    # On a full disk, the first error should propagate, not this one.
    with contextlib.suppress(OSError):
      self._ledger.write(self._step)
    self._log.close()
    self._progress.close()

  def record(self, step, train, evaluation) -> None:
    self._step = step
    if train is not None or evaluation is not None:
      self._log.write(step, train, evaluation)
      self._ledger.write(step, pause=_LEDGER_SECONDS)
    self._progress.update(step, train, evaluation)

  def print(self, line) -> None:
    print_line(line)

  def enter(self, kind) -> str:
    return self._ledger.enter(kind)

  def saved(self, step) -> None:
    self._ledger.saved(step)

  def sync(self, step) -> None:
    self._log.sync()
    self._ledger.write(step)

  def finish(self, step, saved) -> None:
    if saved == step:
      self._ledger.saved(step)  # Again, to include the wait for it.
    self.sync(step)
    self._progress.close()  # It would be drawn over the next line.
    starts = goodput.read_ledger(self._workdir)
    print_line(goodput.describe(goodput.summarize(starts)))
