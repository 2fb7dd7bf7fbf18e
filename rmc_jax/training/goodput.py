"""The ledger of a run: where its wall time went, over all of its starts.

goodput.jsonl has one object a line and one line a start of the run:

  {"from_step": 40, "step": 90, "since": 1.7e9, "until": 1.7e9,
   "seconds": {"start": 3.1, "compile": 2.5, ..., "other": 0.1},
   "saved": [[60, {"start": 3.1, ...}], [80, {...}]]}

with the times of day at its two ends, what it spent on what, and how much of
that it had spent at its last checkpoints. At any moment it spends time on
exactly one thing, so the seconds add up to the wall time by construction.
"""

from collections.abc import Callable
import json
import math
import os
import pathlib
import time

from rmc_jax import files

FILE_NAME = 'goodput.jsonl'
# What a start spends time on. `compile` is the first call, which compiles.
KINDS = (
    'start', 'compile', 'data', 'step', 'evaluation', 'checkpoint', 'other',
)  # fmt: skip
# Making it again is lost work; the others come with every start.
_REPEATED = ('data', 'step', 'evaluation', 'checkpoint', 'other')
_MOST_MARKS = 10
_process_counted = False


class Ledger:
  """Keeps the books of one start; for the primary process only.

  Args:
    workdir: the folder of goodput.jsonl; made if missing.
    step: the step that was restored, 0 for a fresh run.
    started: the time of day when this start began, None for now. What has
      passed since then went into 'start'.
    clock: seconds that never go backwards.
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
    self._seconds: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    self._seconds['start'] = now - since
    self._kind, self._entered = 'start', clock()
    self._written = float('-inf')
    self._record = {'from_step': step, 'step': step, 'since': since}
    self._marks: list[tuple[int, dict[str, float]]] = []

  def enter(self, kind: str) -> str:
    """From here on time is spent on `kind` of KINDS; returns the former."""
    now, former = self._clock(), self._kind
    self._seconds[former] += now - self._entered
    self._kind, self._entered = kind, now
    return former

  def saved(self, step: int) -> None:
    """A checkpoint of `step` is on its way: up to here nothing is lost."""
    self.enter(self._kind)
    self._marks = [*self._marks, (step, dict(self._seconds))][-_MOST_MARKS:]

  def write(self, step: int, *, pause: float = 0.0) -> None:
    """Puts the line of this start, which has come to `step`, on the disk.

    Args:
      step: what it has come to.
      pause: nothing is done within so many seconds after the last time.
    """
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


def start_of_work() -> float:
  """The time of day when this start began, for `Ledger`.

  For the first call in a process that is when the process began, where the
  system tells; what it does later began at the call.
  """
  global _process_counted
  if _process_counted:
    return time.time()
  _process_counted = True
  try:
    fields = pathlib.Path('/proc/self/stat').read_text().rpartition(')')[2]
    ticks = int(fields.split()[19])  # starttime, since the system's start
  except OSError:
    return time.time()
  since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
  return time.time() - (since_boot - ticks / os.sysconf('SC_CLK_TCK'))


def read_ledger(workdir: str | pathlib.Path) -> list[dict]:
  """The lines of a run's goodput.jsonl, a start each; [] without one."""
  path = pathlib.Path(workdir) / FILE_NAME
  if not path.exists():
    return []
  return [json.loads(line) for line in path.read_text().splitlines()]


def summarize(starts: list[dict]) -> dict[str, float]:
  """Seconds of the whole run by kind, with `lost` and `down` beside KINDS.

  `lost` is work that a later start did again, since it was not saved (not what
  a roll back within one start throws away); `down` lies between two starts,
  with the last seconds of one that was killed. All of them add up to the time
  from the beginning of the first start to the last line of the last one.

  Args:
    starts: of `read_ledger`, at least one.
  """
  total: dict[str, float] = dict.fromkeys((*KINDS, 'lost', 'down'), 0.0)
  # From the last to the first: what the later ones did not go on from is lost.
  kept_to = math.inf  # Of the last one all counts.
  for start in reversed(starts):
    kept = _kept(start, kept_to)
    for kind, seconds in start['seconds'].items():
      total[kind] += kept[kind]
      total['lost'] += seconds - kept[kind]
    kept_to = min(kept_to, start['from_step'])
  for before, after in zip(starts, starts[1:], strict=False):
    # Clocks of two machines may disagree.
    total['down'] += max(0.0, after['since'] - before['until'])
  return total


def describe(total: dict[str, float]) -> str:
  """'Goodput 93.1% of 0:10:02: step 93.1%, compile 2.5%', largest first."""
  wall = sum(total.values())
  minutes, seconds = divmod(round(wall), 60)
  hours, minutes = divmod(minutes, 60)
  shares = sorted(total.items(), key=lambda item: -item[1])
  listed = ', '.join(
    f'{kind} {value / wall:.1%}' for kind, value in shares if value > 0
  )
  return (
    f'Goodput {total["step"] / wall:.1%} of {hours}:{minutes:02}:'
    f'{seconds:02}: {listed}'
  )


def _kept(start: dict, step: float) -> dict[str, float]:
  """What of a start's seconds went into the state of `step`."""
  if step == math.inf:
    return start['seconds']
  marks = [mark for at, mark in start['saved'] if at <= step]
  kept = marks[-1] if marks else dict.fromkeys(_REPEATED, 0.0)
  return start['seconds'] | {kind: kept[kind] for kind in _REPEATED}
