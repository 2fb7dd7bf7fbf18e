"""Progress on standard error: a bar on a terminal, else a line now and then."""

import time

from rich.console import Console
from rich.progress import BarColumn
from rich.progress import MofNCompleteColumn
from rich.progress import Progress as Bar
from rich.progress import TextColumn
from rich.progress import TimeRemainingColumn


class Progress:
  """A context that shows the progress of preparing a split.

  Args:
    split: its name.
    num_files: the number of files to read.
    console: None for standard error.
    seconds_between_lines: the least time between two lines where the console is
      not a terminal, such as the log of a batch job.
  """

  def __init__(
    self,
    split: str,
    num_files: int,
    *,
    console: Console | None = None,
    seconds_between_lines: float = 10.0,
  ):
    self._console = Console(stderr=True) if console is None else console
    self._split = split
    self._num_files = num_files
    self._interval = seconds_between_lines
    self._begin = self._last_line = time.monotonic()
    self._files = self._bytes = 0
    self._bar = Bar(
      TextColumn('{task.description}'),
      BarColumn(),
      MofNCompleteColumn(),
      TextColumn('files'),
      TimeRemainingColumn(),
      console=self._console,
      disable=not self._console.is_terminal,
      transient=True,
    )
    self._task = self._bar.add_task(split, total=num_files)

  def __enter__(self) -> 'Progress':
    self._bar.start()
    return self

  def __exit__(self, kind, error, trace) -> None:
    self._bar.stop()
    if error is None:
      log(self._text(), self._console)

  def update(self, files: int, num_bytes: int) -> None:
    """Sets the number of files read and of bytes of text written."""
    self._files, self._bytes = files, num_bytes
    self._bar.update(self._task, completed=files, description=self._amount())
    now = time.monotonic()
    if self._bar.disable and now - self._last_line >= self._interval:
      self._last_line = now
      log(self._text(), self._console)

  def _amount(self) -> str:
    return f'{self._split}: {self._bytes / 1e6:,.1f} MB'

  def _text(self) -> str:
    seconds = max(time.monotonic() - self._begin, 1e-9)
    return (
      f'{self._amount()}, {self._files:,} of {self._num_files:,} files, '
      f'{self._bytes / 1e6 / seconds:,.1f} MB/s'
    )


def log(line: str, console: Console | None = None) -> None:
  """Prints a line verbatim, by default on standard error."""
  console = Console(stderr=True) if console is None else console
  console.print(line, highlight=False, markup=False, soft_wrap=True)
