"""Tests rmc_jax/tasks/language/whole_file.py."""

import os
import time

import pytest

from rmc_jax.tasks.language.whole_file import replacing


def test_the_file_appears_when_the_block_is_left(tmp_path):
  path = tmp_path / 'file'
  with replacing(path) as file:
    file.write(b'one two')
    file.seek(0)
    file.write(b'ONE')
    assert not path.exists()
  assert path.read_bytes() == b'ONE two'
  assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_what_was_there(tmp_path):
  path = tmp_path / 'file'
  path.write_bytes(b'old')

  def fail():
    with replacing(path) as file:
      file.write(b'new')
      file.flush()
      raise RuntimeError('the disk is on fire')

  with pytest.raises(RuntimeError, match='on fire'):
    fail()
  assert path.read_bytes() == b'old'
  assert list(tmp_path.iterdir()) == [path]


def test_two_writers_at_once_do_not_mix(tmp_path):
  path = tmp_path / 'file'
  with replacing(path) as first, replacing(path) as second:
    first.write(b'aaaa')
    second.write(b'bb')
    first.write(b'aaaa')
  assert path.read_bytes() == b'a' * 8  # The last one to be done.
  assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_goes_after_a_day(tmp_path):
  path, now = tmp_path / 'file', time.time()
  left = {name: tmp_path / f'file.{name}.tmp' for name in ('old', 'young')}
  other = tmp_path / 'other.old.tmp'
  for each in (*left.values(), other):
    each.write_bytes(b'half')
  for each in (left['old'], other):
    os.utime(each, (now, now - 25 * 3600))
  os.utime(left['young'], (now, now - 23 * 3600))
  with replacing(path) as file:
    file.write(b'whole')
  assert set(tmp_path.iterdir()) == {path, left['young'], other}
