"""Tests rmc_jax/training/log.py."""

import json
import math
import resource
import struct

import pytest
from tensorboardX.proto.event_pb2 import Event

from rmc_jax.errors import ConfigurationError
from rmc_jax.training.log import FILE_NAME
from rmc_jax.training.log import MetricsLog
from rmc_jax.training.log import read_metrics


def write_steps(workdir, start, *steps):
  log = MetricsLog(workdir, start)
  for step in steps:
    evaluation = {'accuracy': 0.25} if step == 3 else None
    log.write(step, {'loss': 1 / step}, evaluation)
  log.close()


def without_time(workdir):
  return [
    {key: value for key, value in line.items() if key != 'time'}
    for line in read_metrics(workdir)
  ]


def test_writes_one_flushed_object_per_step(tmp_path):
  log = MetricsLog(tmp_path, 0)
  log.write(2, {'loss': 0.5, 'accuracy': 0.25})
  log.write(3, None, {'accuracy': 0.75})
  lines = (tmp_path / FILE_NAME).read_text().splitlines()  # Before close().
  assert [json.loads(line).keys() for line in lines] == [
    {'step', 'train', 'time'},
    {'step', 'eval', 'time'},
  ]
  log.close()
  assert without_time(tmp_path) == [
    {'step': 2, 'train': {'loss': 0.5, 'accuracy': 0.25}},
    {'step': 3, 'eval': {'accuracy': 0.75}},
  ]


def test_numbers_are_exact(tmp_path):
  log = MetricsLog(tmp_path, 0)
  log.write(1, {'loss': 1 / 3})
  log.close()
  assert read_metrics(tmp_path)[0]['train']['loss'] == 1 / 3


def test_non_finite_values_are_null(tmp_path):
  log = MetricsLog(tmp_path, 0)
  log.write(1, {'loss': math.nan, 'norm': math.inf, 'accuracy': 0.0})
  log.close()
  assert read_metrics(tmp_path)[0]['train'] == {
    'loss': None,
    'norm': None,
    'accuracy': 0.0,
  }


@pytest.mark.parametrize('restored', [0, 1, 2, 3, 4])
def test_resumed_log_equals_an_uninterrupted_one(tmp_path, restored):
  write_steps(tmp_path / 'once', 0, 1, 2, 3, 4)
  write_steps(tmp_path / 'twice', 0, *range(1, 5))
  write_steps(tmp_path / 'twice', restored, *range(restored + 1, 5))
  assert without_time(tmp_path / 'twice') == without_time(tmp_path / 'once')


def test_incomplete_last_line_is_written_again(tmp_path):
  write_steps(tmp_path, 0, 1, 2, 3)
  path = tmp_path / FILE_NAME
  content = path.read_bytes()
  last = len(content.splitlines(keepends=True)[-1])
  for cut in range(1, last + 1):
    path.write_bytes(content[:-cut])
    assert [line['step'] for line in read_metrics(tmp_path)] == [1, 2]
    write_steps(tmp_path, 2, 3)
    assert [line['step'] for line in read_metrics(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize('line', ['\0\0\0\n', '{"loss": 1}\n', '[2]\n'])
def test_invalid_line_raises_and_is_kept(tmp_path, line):
  write_steps(tmp_path, 0, 1)
  with (tmp_path / FILE_NAME).open('a') as file:
    file.write(line + '{"step": 3}\n')
  before = (tmp_path / FILE_NAME).read_bytes()
  with pytest.raises(ConfigurationError, match='Line 2 of'):
    MetricsLog(tmp_path, 3)
  assert (tmp_path / FILE_NAME).read_bytes() == before


def test_seconds_continue_from_the_last_line_kept(tmp_path):
  (tmp_path / FILE_NAME).write_text(
    '{"step": 1, "time": {"seconds": 1000.0}}\n'
    '{"step": 2, "time": {"seconds": 5000.0}}\n'
  )
  write_steps(tmp_path, 1, 2)
  assert 1000 <= read_metrics(tmp_path)[1]['time']['seconds'] < 5000


def test_read_metrics_without_a_file(tmp_path):
  assert read_metrics(tmp_path) == []


def test_tensorboard_events_hold_the_same_numbers(tmp_path):
  write_steps(tmp_path, 2, 3)
  (path,) = tmp_path.glob('events.*')
  events = list(read_events(path))
  purged = [event for event in events if event.HasField('session_log')]
  scalars = {
    value.tag: (event.step, value.simple_value)
    for event in events
    for value in event.summary.value
  }
  # Events hold float32, with 24 bits.
  assert scalars['train/loss'] == (3, pytest.approx(1 / 3, rel=2**-24))
  assert scalars['eval/accuracy'] == (3, 0.25)
  # Events of an earlier start beyond step 2 are hidden.
  assert [event.step for event in purged] == [3]


def test_starts_within_a_second_have_separate_event_files(tmp_path):
  for step in (2, 3):
    write_steps(tmp_path, step, step + 1)
  assert len(list(tmp_path.glob('events.*'))) == 2


def test_full_disk_raises(tmp_path):
  log = MetricsLog(tmp_path, 0)

  def write_until_full():
    # With short names and values, events are longer than lines and fail first.
    for step in range(1, 40):
      log.write(step, {f'a{i}': 0.0 for i in range(100)})

  former = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, former[1]))
  try:
    with pytest.raises(OSError, match='too large'):
      write_until_full()
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, former)
  log.close()
  assert (tmp_path / FILE_NAME).stat().st_size < 59_000


def read_events(path):
  """Yields the events of a file of (length, checksum, event, checksum)."""
  content = path.read_bytes()
  while content:
    (length,) = struct.unpack('<Q', content[:8])
    yield Event.FromString(content[12 : 12 + length])
    content = content[16 + length :]
