"""Progress on standard error: a bar on a terminal, else a line now and then."""

import time

from rich.console import Console
from rich.progress import BarColumn
from rich.progress import MofNCompleteColumn
from rich.progress import Progress as Bar
from rich.progress import TimeRemainingColumn


class Progress:
  """A context that shows the progress of preparing a split.

  `console` is standard error by default, and `seconds_between_lines` the least
  time between two lines if it is not a terminal, as in a batch job.
  """

  def __init__(
    self,
    split: str,
    num_files: int,
    *,
    console: Console | None = None,
    seconds_between_lines: float = 10.0,
  ):
    self._console = console or Console(stderr=True)
    self._split = split
    self._interval = seconds_between_lines
    self._last_line = time.monotonic()
    self._bar = Bar(
      '{task.description}',
      BarColumn(),
      MofNCompleteColumn(),
      'files',
      TimeRemainingColumn(),
      console=self._console,
      disable=not self._console.is_terminal,
      transient=True,
    )
    self._task = self._bar.add_task(split, total=num_files, bytes=0)

  def __enter__(self) -> 'Progress':
    self._bar.start()
    return self

  def __exit__(self, kind, error, trace) -> None:
    self._bar.stop()
    if error is None:
      self._log()

  def update(self, files: int, num_bytes: int) -> None:
    """Sets the number of files read and of bytes of text written."""
    self._bar.update(
      self._task,
      completed=files,
      description=f'{self._split}: {num_bytes / 1e6:,.1f} MB',
      bytes=num_bytes,
    )
    now = time.monotonic()
    if self._bar.disable and now - self._last_line >= self._interval:
      self._last_line = now
      self._log()

  def _log(self) -> None:
    (task,) = self._bar.tasks
    rate = task.fields['bytes'] / 1e6 / max(task.elapsed or 0, 1e-9)
    log(
      f'{task.description}, {task.completed:,} of {task.total:,} files, '
      f'{rate:,.1f} MB/s',
      self._console,
    )


def log(line: str, console: Console | None = None) -> None:
  """Prints a line verbatim, by default on standard error."""
  console = console or Console(stderr=True)
  console.print(line, highlight=False, markup=False, soft_wrap=True)
