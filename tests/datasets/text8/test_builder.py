"""Tests rmc_jax/datasets/text8/builder.py on a hundred thousand characters."""

import gzip
import io
import zipfile

import numpy as np
import pytest

from rmc_jax.datasets import load
from rmc_jax.datasets.text8.builder import Text8

LETTERS = np.array(list('abcdefghijklmnopqrstuvwxyz      '))
TEXT = ''.join(np.random.default_rng(0).choice(LETTERS, 100_000))
# The sizes differ, so that swapped splits fail.
CUTS = {
  'train': TEXT[:90_000],
  'valid': TEXT[90_000:96_000],
  'test': TEXT[96_000:],
}


@pytest.fixture
def small(monkeypatch):
  """Text8 at a thousandth of its size."""
  sizes = {split: len(text) for split, text in CUTS.items()}
  monkeypatch.setattr(Text8, 'PUBLISHED', sizes)


def archive(text):
  content = io.BytesIO()
  with zipfile.ZipFile(content, 'w', zipfile.ZIP_DEFLATED) as file:
    file.writestr('text8', text)
  return content.getvalue()


def read(folder):
  return {
    split: ''.join(load.documents('text8', split, data_dir=folder))
    for split in CUTS
  }


@pytest.mark.parametrize('name', ['text8', 'text8.gz', 'text8.zip'])
def test_splits_the_users_file(small, tmp_path, name):
  content = TEXT.encode()
  if name.endswith('gz'):
    content = gzip.compress(content)
  elif name.endswith('zip'):
    content = archive(TEXT)
  (tmp_path / name).write_bytes(content)
  load.prepare('text8', data_dir=tmp_path / 'data', manual_dir=tmp_path)
  assert read(tmp_path / 'data') == CUTS


def test_downloads_the_archive(small, tmp_path, monkeypatch, serve):
  assert Text8.URL.endswith('/dc/text8.zip')
  url, requested = serve({'/dc/text8.zip': archive(TEXT)})
  monkeypatch.setattr(Text8, 'URL', f'{url}/dc/text8.zip')
  load.prepare('text8', data_dir=tmp_path)
  assert read(tmp_path) == CUTS
  assert requested == ['/dc/text8.zip']


def test_records_end_after_a_space(tmp_path, monkeypatch):
  text = 'seven letters ' * 100_000
  cuts = {'train': 1_200_000, 'valid': 100_000, 'test': 100_000}
  monkeypatch.setattr(Text8, 'PUBLISHED', cuts)
  (tmp_path / 'text8').write_text(text)
  splits = load.prepare(
    'text8', data_dir=tmp_path / 'data', manual_dir=tmp_path
  )
  assert splits == {'train': 2, 'valid': 1, 'test': 1}
  first, second = load.documents('text8', 'train', data_dir=tmp_path / 'data')
  assert first + second == text[:1_200_000]
  assert first.endswith(' ')
  assert 999_980 < len(first) <= 1_000_000


@pytest.mark.parametrize(
  'text, message',
  [
    (TEXT[:-1], 'test split of text8 has 3,999 characters; .* has 4,000'),
    (TEXT + 'x', 'test split of text8 has 4,001 characters; .* has 4,000'),
    (TEXT[:96_000], 'empty from character 96,000 on'),
  ],
)
def test_another_size_is_refused(small, tmp_path, text, message):
  (tmp_path / 'text8').write_text(text)
  with pytest.raises(load.DatasetError, match=message):
    load.prepare('text8', data_dir=tmp_path / 'data', manual_dir=tmp_path)


def test_published_sizes():
  sizes = [Text8.PUBLISHED[split] for split in CUTS]
  assert sizes == [90_000_000, 5_000_000, 5_000_000]
