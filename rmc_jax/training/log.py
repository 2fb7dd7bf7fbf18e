"""Writes the metrics of a run to metrics.jsonl and TensorBoard.

metrics.jsonl has one object per line and one line per step, flushed as written:

  {"step": 200, "train": {"loss": 1.7}, "eval": {"loss": 1.8},
   "time": {"seconds": 8.1, "updates_per_second": 50.3}}

"train" holds means over all updates since the previous "train", and "eval" the
means of an evaluation, in the lines where they are due. In an ensemble, a
metric is a list with a number per member. null is a number that is not finite.
A resumed run writes the same lines, except for "time", as an uninterrupted one.
"seconds" is the training time of all starts, without lost work.
"""

from collections.abc import Mapping
import json
import math
import operator
import os
import pathlib
import time
from typing import Any

from absl import logging
import numpy as np
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2
from tensorboardX.summary import scalar

from rmc_jax import files
from rmc_jax.errors import ConfigurationError

FILE_NAME = 'metrics.jsonl'


class MetricsLog:
  """Appends to the metrics of a run; for the primary process only.

  Lines beyond the restored `step` and an incomplete last line, which will be
  written again, are removed.

  Raises:
    ConfigurationError: a line before the last cannot be parsed.
  """

  def __init__(self, workdir: str | pathlib.Path, step: int):
    workdir = pathlib.Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    path = workdir / FILE_NAME
    self._seconds_before = _truncate(path, step)
    self._file = path.open('a')
    # Not SummaryWriter, which waits forever if its thread dies, as on a full
    # disk. The suffix makes the file name unique within a second.
    self._events = EventsWriter(str(workdir / 'events'), f'.{time.time_ns()}')
    # TensorBoard then hides events of an earlier start beyond this step.
    self._write_event(step + 1, session_log={'status': 'START'})
    self._started = time.monotonic()
    self._last = step, self._started

  def write(
    self,
    step: int,
    train: Mapping[str, float] | None = None,
    evaluation: Mapping[str, float] | None = None,
  ) -> None:
    """Writes the line of `step`; OSError if the disk is full, for example."""
    groups = {'train': train, 'eval': evaluation, 'time': self._time(step)}
    line = {'step': step} | {
      group: {name: _finite(value) for name, value in values.items()}
      for group, values in groups.items()
      if values is not None
    }
    self._file.write(json.dumps(line, allow_nan=False) + '\n')
    self._file.flush()
    for group, values in groups.items():
      for name, value in (values or {}).items():
        value = np.mean(value)  # Over the members of an ensemble.
        if math.isfinite(value):
          self._write_event(step, summary=scalar(f'{group}/{name}', value))

  def sync(self) -> None:
    """Flushes to the disk, so that no checkpoint is ahead of the log."""
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
  """Reads the lines of a run's metrics.jsonl; [] if there is none.

  Leaves out an incomplete last line of a run that was killed or is writing.

  Raises:
    ConfigurationError: any other line cannot be parsed.
  """
  path = pathlib.Path(workdir) / FILE_NAME
  return [record for _, record in _complete_lines(path)]


def _truncate(path: pathlib.Path, step: int) -> float:
  """Removes the lines beyond `step`; returns the seconds of the last kept."""
  lines = _complete_lines(path)
  kept = [(line, record) for line, record in lines if record['step'] <= step]
  if len(kept) < len(lines):
    logging.info(
      '%s: %d lines beyond step %d removed, to be written again.',
      path,
      len(lines) - len(kept),
      step,
    )
  files.atomic_write(path, b''.join(line for line, _ in kept))
  return kept[-1][1]['time']['seconds'] if kept else 0.0


def _complete_lines(path: pathlib.Path) -> list[tuple[bytes, dict]]:
  """Returns lines and what they hold, without an incomplete last one."""
  if not path.exists():
    return []
  lines = path.read_bytes().splitlines(keepends=True)
  if lines and not lines[-1].endswith(b'\n'):
    lines.pop()
  records = []
  for number, line in enumerate(lines, 1):
    try:
      record = json.loads(line)
      operator.index(record['step'])
    except (ValueError, TypeError, KeyError) as error:
      raise ConfigurationError(
        f'Line {number} of {path} is not a line of metrics: {line[:60]!r}. '
        'Fix or remove that line, or choose another --workdir.'
      ) from error
    records.append((line, record))
  return records


def _finite(value: Any) -> Any:
  """Replaces nan and infinity, which JSON does not have, by None."""
  if isinstance(value, list):
    return [_finite(each) for each in value]
  return value if math.isfinite(value) else None
