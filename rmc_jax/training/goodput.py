"""The goodput ledger: the wall time of a run by kind of work.

goodput.jsonl has one object per line and one line per start of the run:

  {"from_step": 40, "step": 90, "since": 1.7e9, "until": 1.7e9,
   "seconds": {"start": 3.1, "compile": 2.5, ..., "other": 0.1},
   "saved": [[60, {"start": 3.1, ...}], [80, {...}]]}

with the time of day at both ends, the seconds spent on each kind of work, and
those spent up to each of the last checkpoints. Every moment counts as exactly
one kind, so the seconds sum to the wall time.
"""

from collections.abc import Callable
import itertools
import json
import math
import os
import pathlib
import time

from rmc_jax import files
from rmc_jax.errors import ConfigurationError
from rmc_jax.training.progress import format_duration

FILE_NAME = 'goodput.jsonl'
# Kinds of work. `compile` is the first call of the update, which compiles.
KINDS = (
    'start', 'compile', 'data', 'step', 'evaluation', 'checkpoint', 'other',
)  # fmt: skip
# Kinds that count as lost if a later start repeats them.
_REPEATED = ('data', 'step', 'evaluation', 'checkpoint', 'other')
_MOST_MARKS = 10


class Ledger:
  """The ledger of one start from `step`; for the primary process only.

  The time since `started`, a time of day, counts as 'start'; None for now.
  """

  def __init__(
    self,
    workdir: str | pathlib.Path,
    step: int,
    *,
    started: float | None = None,
    clock: Callable[[], float] = time.monotonic,
  ):
    self._path = pathlib.Path(workdir) / FILE_NAME
    self._path.parent.mkdir(parents=True, exist_ok=True)
    self._earlier = read_ledger(workdir)
    self._clock = clock
    now = time.time()
    since = now if started is None else started
    self._seconds = dict.fromkeys(KINDS, 0.0) | {'start': now - since}
    self._kind, self._entered = 'start', clock()
    self._written = float('-inf')
    self._record = {'from_step': step, 'step': step, 'since': since}
    self._marks: list[tuple[int, dict[str, float]]] = []

  def enter(self, kind: str) -> str:
    """Counts the time from now on as `kind`; returns the previous kind."""
    now, former = self._clock(), self._kind
    self._seconds[former] += now - self._entered
    self._kind, self._entered = kind, now
    return former

  def saved(self, step: int) -> None:
    """Records a checkpoint of `step`: the work so far will not be lost."""
    self.enter(self._kind)
    self._marks = [*self._marks, (step, dict(self._seconds))][-_MOST_MARKS:]

  def write(self, step: int, *, pause: float = 0.0) -> None:
    """Writes the line, unless the last write is less than `pause` s ago."""
    self.enter(self._kind)
    if self._entered - self._written < pause:
      return
    self._written = self._entered
    record = self._record | {
      'step': step,
      'until': self._record['since'] + sum(self._seconds.values()),
      'seconds': self._seconds,
      'saved': self._marks,
    }
    lines = [json.dumps(line) + '\n' for line in [*self._earlier, record]]
    files.atomic_write(self._path, ''.join(lines).encode())


def process_start_time() -> float:
  """Returns the time of day when this process began, or now if unknown."""
  try:
    fields = pathlib.Path('/proc/self/stat').read_text().rpartition(')')[2]
    ticks = int(fields.split()[19])  # starttime, since boot
  except OSError:
    return time.time()
  since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
  return time.time() - (since_boot - ticks / os.sysconf('SC_CLK_TCK'))


def read_ledger(workdir: str | pathlib.Path) -> list[dict]:
  """Reads a run's goodput.jsonl, one object per start; [] if there is none.

  Raises:
    ConfigurationError: the file is damaged.
  """
  path = pathlib.Path(workdir) / FILE_NAME
  if not path.exists():
    return []
  try:
    return [json.loads(line) for line in path.read_text().splitlines()]
  except ValueError as error:
    raise ConfigurationError(
      f'{path} is damaged: {error}. Remove it; only the account of how earlier '
      'starts spent their time is lost.'
    ) from error


def summarize(starts: list[dict]) -> dict[str, float]:
  """Sums the seconds of all starts, by KINDS and `lost` and `down`.

  `lost` is unsaved work that a later start repeated, but not work that a roll
  back discarded. `down` is the time between starts, including the unrecorded
  last seconds of a killed one. The sum is the time from the beginning of the
  first start to the last line of the last one.
  """
  total: dict[str, float] = dict.fromkeys((*KINDS, 'lost', 'down'), 0.0)
  # Work beyond the step that a later start restored is lost.
  kept_to = math.inf
  for start in reversed(starts):
    kept = _kept(start, kept_to)
    for kind, seconds in start['seconds'].items():
      total[kind] += kept[kind]
      total['lost'] += seconds - kept[kind]
    kept_to = min(kept_to, start['from_step'])
  for before, after in itertools.pairwise(starts):
    # Not negative, although the clocks of two machines may differ.
    total['down'] += max(0.0, after['since'] - before['until'])
  return total


def describe(total: dict[str, float]) -> str:
  """Formats 'Goodput 93.1% of 0:10:02: step 93.1%, ...', largest first."""
  wall = sum(total.values())
  largest_first = sorted(total.items(), key=lambda item: -item[1])
  shares = ', '.join(
    f'{kind} {value / wall:.1%}' for kind, value in largest_first if value > 0
  )
  goodput = f'Goodput {total["step"] / wall:.1%}'
  return f'{goodput} of {format_duration(round(wall))}: {shares}'


def _kept(start: dict, step: float) -> dict[str, float]:
  """Returns the seconds of a start that contributed to the state of `step`."""
  if step == math.inf:
    return start['seconds']
  marks = [mark for at, mark in start['saved'] if at <= step]
  kept = marks[-1] if marks else dict.fromkeys(_REPEATED, 0.0)
  return start['seconds'] | {kind: kept[kind] for kind in _REPEATED}
