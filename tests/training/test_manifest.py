"""Tests rmc_jax/training/manifest.py."""

import numpy as np
import pytest

from rmc_jax.training import manifest


@pytest.fixture
def directory(tmp_path):
  (tmp_path / 'deep' / 'er').mkdir(parents=True)
  (tmp_path / 'top.bin').write_bytes(bytes(range(11)))
  (tmp_path / 'deep' / 'er' / 'empty').write_bytes(b'')
  leaves = {'w': {'layout': 'float32[2]', 'digest': 'abc'}}
  manifest.write(tmp_path, 5, leaves)
  return tmp_path


def test_verify_returns_the_manifest(directory):
  record = manifest.verify(directory)
  assert record['step'] == 5
  assert record['leaves'] == {'w': {'layout': 'float32[2]', 'digest': 'abc'}}
  assert sorted(record['files']) == ['deep/er/empty', 'top.bin']
  assert record['versions']['jax']
  assert record['devices'] == {
    'platform': 'cpu',
    'device_kind': 'cpu',
    'devices': 4,
    'processes': 1,
  }


@pytest.mark.parametrize('name', ['top.bin', manifest.FILE_NAME])
def test_any_flipped_bit_raises(directory, name):
  content = (directory / name).read_bytes()
  for place in range(len(content)):
    changed = bytearray(content)
    changed[place] ^= 1 << place % 8
    (directory / name).write_bytes(changed)
    with pytest.raises(manifest.Damaged, match='changed'):
      manifest.verify(directory)


def test_missing_and_added_files_raise(directory):
  (directory / 'deep' / 'er' / 'empty').rename(directory / 'moved')
  with pytest.raises(manifest.Damaged, match='deep/er/empty is missing'):
    manifest.verify(directory)
  (directory / 'deep' / 'er' / 'empty').write_bytes(b'')
  with pytest.raises(manifest.Damaged, match='moved was added'):
    manifest.verify(directory)


def test_missing_manifest_raises_incomplete(directory):
  (directory / manifest.FILE_NAME).unlink()
  with pytest.raises(manifest.Incomplete):
    manifest.verify(directory)


def test_digest_does_not_depend_on_memory_order():
  array = np.arange(6, dtype=np.float32).reshape(2, 3)
  assert manifest.digest_of_array(array) == manifest.digest_of_array(
    np.asfortranarray(array)
  )
  assert manifest.digest_of_array(array) != manifest.digest_of_array(array.T)
