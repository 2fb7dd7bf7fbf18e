"""The record of a run: metrics.jsonl, and the same numbers for TensorBoard.

metrics.jsonl has one object a line and one line a step, flushed as written:

  {"step": 200, "train": {"loss": 1.7}, "eval": {"loss": 1.8},
   "time": {"seconds": 8.1, "updates_per_second": 50.3}}

"train" or "eval" is absent where it was not due, and null is a number that is
not finite. All but "time" depends only on the configuration: a run killed and
resumed writes the same lines as one that was not. "time" is the clock: seconds
of training, over all starts but without work that was lost.
"""

from collections.abc import Mapping
import json
import math
import os
import pathlib
import time

from absl import logging
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2
from tensorboardX.summary import scalar

from rmc_jax import files
from rmc_jax.errors import ConfigurationError

FILE_NAME = 'metrics.jsonl'


class MetricsLog:
  """Appends to the record of a run; for the primary process only.

  Args:
    workdir: the folder of metrics.jsonl and of the TensorBoard events; made if
      missing.
    step: the step that was restored, 0 for a fresh start. Lines beyond it, and
      a last line cut off in writing, are removed: they will be written again.

  Raises:
    ConfigurationError: a line before the last is not readable.
  """

  def __init__(self, workdir: str | pathlib.Path, step: int):
    workdir = pathlib.Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    path = workdir / FILE_NAME
    self._seconds_before = _truncate(path, step)
    self._file = path.open('a')
    # Not SummaryWriter: it writes from a thread, and once that has died, of a
    # full disk say, waits for it for ever. The name has seconds only.
    self._events = EventsWriter(str(workdir / 'events'), f'.{time.time_ns()}')
    # TensorBoard hides what an earlier start wrote beyond this step.
    self._write_event(step + 1, session_log={'status': 'START'})
    self._started = time.monotonic()
    self._last = step, self._started

  def write(
    self,
    step: int,
    train: Mapping[str, float] | None = None,
    evaluation: Mapping[str, float] | None = None,
  ) -> None:
    """Writes the one line of `step`.

    Raises:
      OSError: it could not be written.
    """
    groups = {
      'train': train,
      'eval': evaluation,
      'time': self._time(step),
    }
    line = {'step': step} | {
      group: {name: _finite(value) for name, value in values.items()}
      for group, values in groups.items()
      if values is not None
    }
    self._file.write(json.dumps(line, allow_nan=False) + '\n')
    self._file.flush()
    for group, values in groups.items():
      for name, value in (values or {}).items():
        if math.isfinite(value):
          summary = scalar(f'{group}/{name}', value)
          self._write_event(step, summary=summary)

  def sync(self) -> None:
    """Puts on the disk what was written, so that no checkpoint is ahead."""
    os.fsync(self._file.fileno())
    self._events.flush()  # Includes the fsync.

  def close(self) -> None:
    self._file.close()
    self._events.close()

  def _write_event(self, step: int, **content) -> None:
    # The classes of a protocol buffer are made at run time.
    make = event_pb2.Event  # pyright: ignore[reportAttributeAccessIssue]
    self._events.write_event(make(wall_time=time.time(), step=step, **content))

  def _time(self, step: int) -> dict[str, float]:
    last_step, last_time = self._last
    now = time.monotonic()
    self._last = step, now
    return {
      'seconds': self._seconds_before + now - self._started,
      'updates_per_second': (step - last_step) / (now - last_time),
    }


def read_metrics(workdir: str | pathlib.Path) -> list[dict]:
  """Reads the lines of a run's metrics.jsonl; [] where there is none.

  A last line without its end (a run killed in writing, or still writing) is
  left out.

  Raises:
    ConfigurationError: any other line is not readable; names it.
  """
  path = pathlib.Path(workdir) / FILE_NAME
  return [json.loads(line) for line in _whole_lines(path)]


def _truncate(path: pathlib.Path, step: int) -> float:
  """Removes the lines beyond `step`; returns the seconds of the last kept."""
  if not path.exists():
    return 0.0
  lines = _whole_lines(path)
  kept = [line for line in lines if json.loads(line)['step'] <= step]
  if len(kept) < len(lines):
    logging.info(
      '%s: %d lines beyond step %d removed, to be written again.',
      path,
      len(lines) - len(kept),
      step,
    )
  files.atomic_write(path, b''.join(kept))
  return json.loads(kept[-1])['time']['seconds'] if kept else 0.0


def _whole_lines(path: pathlib.Path) -> list[bytes]:
  """The lines, each with its newline, but for a last one that was cut off."""
  if not path.exists():
    return []
  lines = path.read_bytes().splitlines(keepends=True)
  if lines and not lines[-1].endswith(b'\n'):
    lines.pop()
  for number, line in enumerate(lines, 1):
    if not _is_record(line):
      raise ConfigurationError(
        f'Line {number} of {path} is not a line of metrics: {line[:60]!r}. '
        'Mend or remove that line, or choose another workdir.'
      )
  return lines


def _is_record(line: bytes) -> bool:
  try:
    record = json.loads(line)
  except ValueError:
    return False
  return isinstance(record, dict) and isinstance(record.get('step'), int)


def _finite(value: float) -> float | None:
  """JSON has no nan and no infinity."""
  return value if math.isfinite(value) else None
