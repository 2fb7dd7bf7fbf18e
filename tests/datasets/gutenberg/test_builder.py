"""Tests rmc_jax/datasets/gutenberg/builder.py."""

import gzip
import json

import pytest

from rmc_jax.datasets import load
from rmc_jax.datasets.gutenberg.builder import Gutenberg

# Split of PG-19 -> its books. Names and numbers sort differently.
BOOKS = {
  'train': {'10': 'Ten.\n', '9': 'Nine\n\nof them.', '102': 'Long ago.\n'},
  'validation': {'7': 'Seven.\n'},
  'test': {'5': 'Five.\n', '40': 'Forty.\n'},
}
READ = {
  'train': ['Ten.\n', 'Long ago.\n', 'Nine\n\nof them.'],
  'valid': ['Seven.\n'],
  'test': ['Forty.\n', 'Five.\n'],
}


@pytest.fixture
def small(monkeypatch):
  """PG-19 with a few books."""
  sizes = {split: len(books) for split, books in READ.items()}
  monkeypatch.setattr(Gutenberg, 'PUBLISHED', sizes)


def write(folder, books):
  folder.mkdir(parents=True)
  for name, text in books.items():
    (folder / f'{name}.txt').write_text(text)


def read(name, folder):
  return {
    split: list(load.documents(name, split, data_dir=folder)) for split in READ
  }


def test_reads_the_users_pg19(small, tmp_path):
  for split, books in BOOKS.items():
    write(tmp_path / 'mine' / split, books)
  (tmp_path / 'mine/metadata.csv').write_text('7,Seven,1900,http://x\n')
  (tmp_path / 'mine/train/notes.md').write_text('No book.')
  splits = load.prepare(
    'gutenberg', data_dir=tmp_path, manual_dir=tmp_path / 'mine'
  )
  assert splits == {'train': 3, 'valid': 1, 'test': 2}
  assert read('gutenberg', tmp_path) == READ


def test_downloads_pg19_page_by_page(small, tmp_path, monkeypatch, serve):
  listed = {
    split: [f'{split}/{name}.txt' for name in books]
    for split, books in BOOKS.items()
  }
  fields = 'fields=nextPageToken%2Citems%2Fname'
  # Split -> pages: the token of the page, the names, the token of the next.
  pages = {
    'train': [
      ('', listed['train'][:2], 'a/b='),
      ('a%2Fb%3D', listed['train'][2:], ''),
    ],
    'validation': [('', ['validation/', *listed['validation']], '')],
    'test': [('', listed['test'], '')],
  }
  files = {
    f'/storage/v1/b/deepmind-gutenberg/o?prefix={split}%2F&{fields}'
    f'&pageToken={token}': json.dumps(
      {
        'items': [{'name': name} for name in names],
        **({'nextPageToken': following} if following else {}),
      }
    ).encode()
    for split, parts in pages.items()
    for token, names, following in parts
  }
  for split, books in BOOKS.items():
    for name, text in books.items():
      files[f'/deepmind-gutenberg/{split}/{name}.txt'] = text.encode()
  url, requested = serve(files)
  monkeypatch.setattr(Gutenberg, 'URL', url)
  load.prepare('gutenberg', data_dir=tmp_path)
  assert read('gutenberg', tmp_path) == READ
  assert sorted(requested) == sorted(files)


def test_a_part_of_pg19_is_refused(tmp_path):
  for split, books in BOOKS.items():
    write(tmp_path / 'mine' / split, books)
  with pytest.raises(
    load.DatasetError,
    match='train split of gutenberg has 3 documents; .* has 28,602.*gsutil',
  ):
    load.prepare('gutenberg', data_dir=tmp_path, manual_dir=tmp_path / 'mine')


def test_a_missing_split_of_pg19_is_an_error(small, tmp_path):
  write(tmp_path / 'mine/train', BOOKS['train'])
  write(tmp_path / 'mine/valid', BOOKS['validation'])
  with pytest.raises(
    load.DatasetError, match=r'no folder validation\. It has: train, valid\.'
  ):
    load.prepare('gutenberg', data_dir=tmp_path, manual_dir=tmp_path / 'mine')


@pytest.mark.parametrize('valid', ['valid', 'validation'])
def test_reads_a_folder_divided_into_splits(tmp_path, valid):
  for split, books in BOOKS.items():
    write(tmp_path / 'mine' / split.replace('validation', valid), books)
  packed = tmp_path / 'mine/test/5.txt'
  (tmp_path / 'mine/test/5.txt.gz').write_bytes(
    gzip.compress(packed.read_bytes())
  )
  packed.unlink()
  load.prepare(
    'gutenberg/folder', data_dir=tmp_path, manual_dir=tmp_path / 'mine'
  )
  assert read('gutenberg/folder', tmp_path) == READ


def test_splits_one_folder_by_book(tmp_path):
  books = {f'{i:03}': f'Book {i}.\n' for i in range(61)}
  write(tmp_path / 'mine', books)
  splits = load.prepare(
    'gutenberg/folder', data_dir=tmp_path, manual_dir=tmp_path / 'mine'
  )
  assert splits == {'train': 55, 'valid': 3, 'test': 3}
  found = read('gutenberg/folder', tmp_path)
  assert sorted(sum(found.values(), [])) == sorted(books.values())
  for split in found.values():
    assert split == sorted(split, key=lambda text: int(text[5:-2]))
  # Not the first ones or the last ones.
  assert found['train'] != list(books.values())[:55]
  assert found['train'] != list(books.values())[6:]

  # A compressed book keeps its split.
  for path in (tmp_path / 'mine').iterdir():
    path.with_name(f'{path.name}.gz').write_bytes(
      gzip.compress(path.read_bytes())
    )
    path.unlink()
  load.prepare(
    'gutenberg/folder', data_dir=tmp_path / 'b', manual_dir=tmp_path / 'mine'
  )
  assert read('gutenberg/folder', tmp_path / 'b') == found


def test_needs_three_books(tmp_path):
  write(tmp_path / 'mine', {'a': 'A.', 'b': 'B.'})
  with pytest.raises(load.DatasetError, match='has 2 books.* at least three'):
    load.prepare(
      'gutenberg/folder', data_dir=tmp_path, manual_dir=tmp_path / 'mine'
    )


def test_a_folder_without_books_is_an_error(tmp_path):
  write(tmp_path / 'mine', {})
  (tmp_path / 'mine/book.epub').touch()
  with pytest.raises(load.DatasetError, match=r'no \.txt .* has: book\.epub'):
    load.prepare(
      'gutenberg/folder', data_dir=tmp_path, manual_dir=tmp_path / 'mine'
    )


def test_a_duplicate_book_is_an_error(tmp_path):
  write(tmp_path / 'mine', {'1': 'One.\n', '2': 'Two.\n', '3': 'Three.\n'})
  # It could be in train and in test.
  (tmp_path / 'mine/2.txt.gz').write_bytes(gzip.compress(b'Two.\n'))
  (tmp_path / 'mine/4.txt').mkdir()  # not a book
  with pytest.raises(
    load.DatasetError, match=r'2\.txt and .*2\.txt\.gz are the same book'
  ):
    load.prepare(
      'gutenberg/folder', data_dir=tmp_path, manual_dir=tmp_path / 'mine'
    )


def test_an_empty_book_is_an_error(tmp_path):
  write(tmp_path / 'mine', {'a': 'A.', 'b': '\n', 'c': 'C.'})
  with pytest.raises(load.DatasetError, match=r'b\.txt is empty'):
    load.prepare(
      'gutenberg/folder', data_dir=tmp_path, manual_dir=tmp_path / 'mine'
    )


def test_own_books_cannot_be_downloaded(tmp_path):
  with pytest.raises(load.DatasetError, match='cannot be downloaded'):
    load.prepare('gutenberg/folder', data_dir=tmp_path)


def test_reads_the_real_sample(tmp_path, real_data):
  folder = real_data('gutenberg-sample')
  load.prepare('gutenberg/folder', data_dir=tmp_path, manual_dir=folder)
  words = {}
  for split, found in read('gutenberg/folder', tmp_path).items():
    paths = sorted((folder / split).glob('*.txt.gz'))
    texts = [gzip.decompress(path.read_bytes()).decode() for path in paths]
    assert ''.join(found) == ''.join(texts)
    words[split] = sum(len(text.split()) for text in found)
  # From the note beside the files.
  assert words == {'train': 1_383_931, 'valid': 70_933, 'test': 83_283}
