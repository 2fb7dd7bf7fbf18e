"""Builder of books: PG-19 as published, or any folder of .txt files."""

import hashlib
import json
import pathlib
from urllib.parse import quote

import tensorflow_datasets as tfds

from rmc_jax.datasets.text_builder import Sources
from rmc_jax.datasets.text_builder import TextBuilder
from rmc_jax.datasets.text_files import check_distinct
from rmc_jax.datasets.text_files import contents
from rmc_jax.datasets.text_files import DatasetError
from rmc_jax.datasets.text_files import Source

# Split -> the allowed names of its folder; the first is that of PG-19.
_FOLDERS = {
  'train': ('train',),
  'valid': ('validation', 'valid'),
  'test': ('test',),
}
_BUCKET = 'deepmind-gutenberg'


class Gutenberg(TextBuilder):
  """Project Gutenberg; a document is a book. Books are sorted by name.

  The corpus of Rae et al. 2018, on which Santoro et al. 2018 trained, was never
  published. PG-19 is its public successor, ten times as large.
  """

  name = 'gutenberg'
  BUILDER_CONFIGS = [
    tfds.core.BuilderConfig(
      name='pg19', description='PG-19: 28,752 books from before 1919.'
    ),
    tfds.core.BuilderConfig(name='folder', description='Your own books.'),
  ]
  DESCRIPTION = 'Books of Project Gutenberg, as plain text.'
  CITATION = (
    'Jack W. Rae, Anna Potapenko, Siddhant M. Jayakumar, Timothy P. '
    'Lillicrap: Compressive Transformers for Long-Range Sequence Modelling. '
    'arXiv:1911.05507, 2019.'
  )
  HOMEPAGE = 'https://github.com/google-deepmind/pg19'
  LICENSE = (
    'PG-19: Apache License 2.0; its books are in the public domain in the '
    'United States. Your own books: their own licences.'
  )
  STYLE = 'words'
  URL = 'https://storage.googleapis.com'
  MANUAL_DOWNLOAD_INSTRUCTIONS = (
    'Needed in the folder, for gutenberg (PG-19): train/, validation/ and '
    f'test/ with the .txt files, as from "gsutil -m cp -r gs://{_BUCKET} ."; '
    'for gutenberg/folder: train/, valid/ (or validation/) and test/ with '
    '.txt or .txt.gz files of your own, or all files in the folder itself: '
    'then valid and test each get a twentieth of the books, but at least one.'
  )
  UNIT = 'documents'
  PUBLISHED = {'train': 28_602, 'valid': 50, 'test': 100}

  @property
  def can_download(self) -> bool:
    """Whether this is PG-19, which is public."""
    return self.builder_config_name == 'pg19'

  def _sources(self, path: pathlib.Path) -> Sources:
    own = self.builder_config_name == 'folder'
    if own and not any(
      (path / name).is_dir() for names in _FOLDERS.values() for name in names
    ):
      return _split_by_book(_books(path))
    return {
      split: _books(_folder(path, names if own else names[:1]))
      for split, names in _FOLDERS.items()
    }

  def _download(self, dl_manager: tfds.download.DownloadManager) -> Sources:
    sources = {}
    for split, (folder, *_) in _FOLDERS.items():
      names = self._list(dl_manager, folder)
      urls = {name: f'{self.URL}/{_BUCKET}/{quote(name)}' for name in names}
      sources[split] = [
        Source(path, name=pathlib.PurePath(name).name)
        for name, path in sorted(self._fetch(dl_manager, urls).items())
      ]
    return sources

  def _list(
    self, dl_manager: tfds.download.DownloadManager, folder: str
  ) -> list[str]:
    """Lists the books in a folder of the bucket, page by page."""
    names, token = [], ''
    while True:
      url = (
        f'{self.URL}/storage/v1/b/{_BUCKET}/o?prefix={folder}%2F'
        f'&fields=nextPageToken%2Citems%2Fname&pageToken={quote(token, "")}'
      )
      page = json.loads(self._fetch(dl_manager, url).read_text())
      names += [item['name'] for item in page.get('items', ())]
      token = page.get('nextPageToken', '')
      if not token:
        return [name for name in names if name.endswith('.txt')]

  def _check_counts(self, split, counts, sources) -> None:
    if self.builder_config_name == 'pg19':
      super()._check_counts(split, counts, sources)


def _folder(path: pathlib.Path, names: tuple[str, ...]) -> pathlib.Path:
  for name in names:
    if (path / name).is_dir():
      return path / name
  raise DatasetError(
    f'{path} has no folder {" or ".join(names)}. It has: {contents(path)}. '
    f'{Gutenberg.MANUAL_DOWNLOAD_INSTRUCTIONS}'
  )


def _books(folder: pathlib.Path) -> list[Source]:
  paths = [
    path
    for path in sorted(folder.iterdir())
    if path.name.endswith(('.txt', '.txt.gz')) and path.is_file()
  ]
  if not paths:
    raise DatasetError(
      f'{folder} has no .txt or .txt.gz file. It has: {contents(folder)}. '
      f'{Gutenberg.MANUAL_DOWNLOAD_INSTRUCTIONS}'
    )
  books = [Source(path) for path in paths]
  check_distinct(books, 'book')
  return books


def _split_by_book(books: list[Source]) -> Sources:
  """Splits by the digests of the names: few books change it if one is added."""
  if len(books) < 3:
    raise DatasetError(
      f'{books[0].path.parent} has {len(books)} books; three splits need at '
      'least three. Add books, or divide them into train/, valid/ and test/.'
    )
  ranked = sorted(
    books, key=lambda book: hashlib.sha256(book.title.encode()).digest()
  )
  share = max(1, len(books) // 20)
  return {
    'train': sorted(ranked[2 * share :]),
    'valid': sorted(ranked[share : 2 * share]),
    'test': sorted(ranked[:share]),
  }
