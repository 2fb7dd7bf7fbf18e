"""The progress of a preparation on standard error: a bar, else a few lines."""

import time

from rich.console import Console
from rich.progress import BarColumn
from rich.progress import MofNCompleteColumn
from rich.progress import Progress as Bar
from rich.progress import TextColumn
from rich.progress import TimeRemainingColumn


class Progress:
  """Shows how far a split is; used as a context.

  Args:
    split: its name.
    num_files: how many files it is read from.
    console: None for standard error.
    seconds_between_lines: where it is not a terminal (the log of a batch job),
      one line at most this often.
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
    self._between = seconds_between_lines
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
      say(self._text(), self._console)

  def update(self, files: int, num_bytes: int) -> None:
    """Tells that `files` files are done and `num_bytes` of text written."""
    self._files, self._bytes = files, num_bytes
    self._bar.update(self._task, completed=files, description=self._amount())
    now = time.monotonic()
    if self._bar.disable and now - self._last_line >= self._between:
      self._last_line = now
      say(self._text(), self._console)

  def _amount(self) -> str:
    return f'{self._split}: {self._bytes / 1e6:,.1f} MB'

  def _text(self) -> str:
    seconds = max(time.monotonic() - self._begin, 1e-9)
    return (
      f'{self._amount()}, {self._files:,} of {self._num_files:,} files, '
      f'{self._bytes / 1e6 / seconds:,.1f} MB/s'
    )


def say(line: str, console: Console | None = None) -> None:
  """Prints a line as it is, on standard error where no console is given."""
  console = Console(stderr=True) if console is None else console
  console.print(line, highlight=False, markup=False, soft_wrap=True)
