"""Tests `rmc_jax.files`."""

import os
import time

import pytest

from rmc_jax.files import atomic_write
from rmc_jax.files import atomic_writer


def test_atomic_write_replaces_the_file_and_leaves_no_other(tmp_path):
  for content in (b'longer content', b'', b'new'):
    atomic_write(tmp_path / 'file.json', content)
    assert [p.name for p in tmp_path.iterdir()] == ['file.json']
    assert (tmp_path / 'file.json').read_bytes() == content


def test_content_is_synced_before_the_rename_and_the_folder_after(
  tmp_path, monkeypatch
):
  path = tmp_path / 'file'
  path.write_bytes(b'old')
  synced = []

  def fsync(descriptor):
    synced.append((os.fstat(descriptor).st_ino, path.read_bytes()))

  monkeypatch.setattr(os, 'fsync', fsync)
  atomic_write(path, b'new')
  assert synced == [
    (path.stat().st_ino, b'old'),
    (tmp_path.stat().st_ino, b'new'),
  ]


def test_failed_sync_keeps_the_old_file(tmp_path, monkeypatch):
  path = tmp_path / 'file'
  path.write_bytes(b'old')

  def fsync(descriptor):
    raise OSError('The disk is full.')

  monkeypatch.setattr(os, 'fsync', fsync)
  with pytest.raises(OSError, match='full'):
    atomic_write(path, b'new')
  assert path.read_bytes() == b'old'
  assert list(tmp_path.iterdir()) == [path]


def test_file_appears_when_the_block_ends(tmp_path):
  path = tmp_path / 'file'
  with atomic_writer(path) as file:
    file.write(b'one two')
    file.seek(0)
    file.write(b'ONE')
    assert not path.exists()
  assert path.read_bytes() == b'ONE two'
  assert list(tmp_path.iterdir()) == [path]


def test_exception_in_the_block_keeps_the_old_file(tmp_path):
  path = tmp_path / 'file'
  path.write_bytes(b'old')

  def fail():
    with atomic_writer(path) as file:
      file.write(b'new')
      file.flush()
      raise RuntimeError('the disk is on fire')

  with pytest.raises(RuntimeError, match='on fire'):
    fail()
  assert path.read_bytes() == b'old'
  assert list(tmp_path.iterdir()) == [path]


def test_concurrent_writers_do_not_mix(tmp_path):
  path = tmp_path / 'file'
  with atomic_writer(path) as first, atomic_writer(path) as second:
    first.write(b'aaaa')
    second.write(b'bb')
    first.write(b'aaaa')
  assert path.read_bytes() == b'a' * 8  # The outer block ends last.
  assert list(tmp_path.iterdir()) == [path]


def test_temporary_files_are_removed_after_a_day(tmp_path):
  path, now = tmp_path / 'file', time.time()
  left = {name: tmp_path / f'file.{name}.tmp' for name in ('old', 'young')}
  other = tmp_path / 'other.old.tmp'
  for each in (*left.values(), other):
    each.write_bytes(b'half')
  for each in (left['old'], other):
    os.utime(each, (now, now - 25 * 3600))
  os.utime(left['young'], (now, now - 23 * 3600))
  with atomic_writer(path) as file:
    file.write(b'complete')
  assert set(tmp_path.iterdir()) == {path, left['young'], other}
