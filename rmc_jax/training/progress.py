"""Shows progress on the console: a bar on a terminal, otherwise lines."""

from collections.abc import Mapping
import time

import numpy as np
from rich.console import Console
from rich.progress import BarColumn
from rich.progress import MofNCompleteColumn
from rich.progress import Progress as Bar

# The metrics to show, in this order; all metrics if a run has neither.
_SHOWN = ('loss', 'accuracy')


class Progress:
  """Shows step, metrics, rate and time left; for the primary process.

  The `console` is standard output by default; if it is no terminal, there are
  at least `seconds_between_lines` between two lines.
  """

  def __init__(
    self,
    step: int,
    num_steps: int,
    *,
    console: Console | None = None,
    seconds_between_lines: float = 10.0,
  ):
    self._console = console or Console()
    self._num_steps = num_steps
    self._between = seconds_between_lines
    self._train = self._evaluation = ''
    self._last_line = time.monotonic()
    # The rate excludes the first call, which compiles.
    self._origin: tuple[int, float] | None = None
    self._bar = Bar(
      BarColumn(),
      MofNCompleteColumn(),
      '{task.description}',
      console=self._console,
      disable=not self._console.is_terminal,
    )
    self._task = self._bar.add_task(
      'compiling', total=num_steps, completed=step
    )
    self._bar.start()

  def update(
    self,
    step: int,
    train: Mapping[str, float] | None = None,
    evaluation: Mapping[str, float] | None = None,
  ) -> None:
    """Shows `step`, with new metrics if there are any."""
    now = time.monotonic()
    if train is not None:
      self._train = _format('', train)
    if evaluation is not None:
      self._evaluation = _format('eval ', evaluation)
    if self._origin is None:
      self._origin = step, now
    parts = self._train, self._evaluation, self._pace(step, now)
    text = '  '.join(part for part in parts if part)
    self._bar.update(self._task, completed=step, description=text)
    is_due = now - self._last_line >= self._between or step >= self._num_steps
    if self._bar.disable and is_due and (self._train or self._evaluation):
      self._last_line = now
      print_line(f'step {step}/{self._num_steps}  {text}', self._console)

  def close(self) -> None:
    """Stops the bar, if there is one."""
    self._bar.stop()

  def _pace(self, step: int, now: float) -> str:
    """Returns the rate and the time left; '' before there is a rate."""
    first_step, first_time = self._origin or (step, now)
    if step <= first_step or now <= first_time:
      return ''
    rate = (step - first_step) / (now - first_time)
    left = max(0, round((self._num_steps - step) / rate))
    return f'{rate:.4g} updates/s  {format_duration(left)} left'


def print_line(line: str, console: Console | None = None) -> None:
  """Prints a line without markup, above the bar of that console."""
  console = console or Console()
  console.print(line, highlight=False, markup=False, soft_wrap=True)


def format_duration(seconds: int) -> str:
  """Returns hours, minutes and seconds, such as 100:02:03."""
  minutes, seconds = divmod(seconds, 60)
  return f'{minutes // 60}:{minutes % 60:02}:{seconds:02}'


def _format(prefix: str, metrics: Mapping[str, float]) -> str:
  shown = [name for name in _SHOWN if name in metrics] or metrics
  return '  '.join(
    f'{prefix}{name} {np.mean(metrics[name]):.4g}' for name in shown
  )
