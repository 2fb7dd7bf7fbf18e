"""Tests `rmc_jax.training.whole_file`: the content, the name, the folder."""

import os

import pytest

from rmc_jax.training import whole_file


def test_replaces_what_is_there_and_leaves_nothing_beside(tmp_path):
  for content in (b'longer content', b'', b'new'):
    whole_file.write(tmp_path / 'file.json', content)
    assert [p.name for p in tmp_path.iterdir()] == ['file.json']
    assert (tmp_path / 'file.json').read_bytes() == content


def test_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
  path = tmp_path / 'file'
  path.write_bytes(b'old')
  synced = []

  def fsync(descriptor):
    synced.append((os.fstat(descriptor).st_ino, path.read_bytes()))

  monkeypatch.setattr(os, 'fsync', fsync)
  whole_file.write(path, b'new')
  assert synced == [
    (path.stat().st_ino, b'old'),
    (tmp_path.stat().st_ino, b'new'),
  ]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
  path = tmp_path / 'file'
  path.write_bytes(b'old')

  def fsync(descriptor):
    raise OSError('The disk is full.')

  monkeypatch.setattr(os, 'fsync', fsync)
  with pytest.raises(OSError, match='full'):
    whole_file.write(path, b'new')
  assert path.read_bytes() == b'old'
