"""Tests rmc_jax/datasets/text_builder.py on a corpus of three small files."""

import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core import registered

from rmc_jax.datasets import text_builder
from rmc_jax.datasets.text_files import DatasetError
from rmc_jax.datasets.text_files import find
from rmc_jax.datasets.text_files import Source

TEXTS = {
  'train': ''.join(f'{i} apples and pears\n' for i in range(40)),
  'valid': 'Zoë \n\n saw 7 €',
  'test': 'the end\n',
}


class Lines(text_builder.TextBuilder):
  """Every line is a document; `on_document` is called before each."""

  name = 'lines'
  DESCRIPTION, CITATION, LICENSE = 'Lines.', 'Nobody, 2018.', 'Public domain.'
  MANUAL_DOWNLOAD_INSTRUCTIONS = 'Needed: three files.'
  RECORDS_PER_SHARD = 3

  def on_document(self, index):
    """A hook for tests."""

  def _sources(self, path):
    return {split: [find(path, [split])] for split in text_builder.SPLITS}

  def _documents(self, source: Source):
    text = source.path.read_text()
    if source.path.name == 'valid':
      yield 'all', iter(text)
      yield 'without text', iter([''])
      return
    for index, line in enumerate(text.splitlines(keepends=True)):
      self.on_document(index)
      yield f'{source.title} {index}', iter([line])


@pytest.fixture
def corpus(tmp_path):
  for split, text in TEXTS.items():
    (tmp_path / f'{split}').write_text(text)
  return tmp_path


def prepare(builder, corpus):
  builder.download_and_prepare(
    file_format=text_builder.FILE_FORMAT,
    download_config=tfds.download.DownloadConfig(manual_dir=corpus),
  )


def records(builder, split):
  return list(builder.as_data_source(split))


def test_records_are_the_documents_in_order(corpus, tmp_path):
  prepare(Lines(data_dir=tmp_path / 'data'), corpus)
  builder = Lines(data_dir=tmp_path / 'data')  # as in a later process
  assert list(builder.info.splits) == ['train', 'valid', 'test']
  assert builder.info.splits['train'].num_examples == 40
  # 40 records in shards of 3.
  assert builder.info.splits['train'].shard_lengths == [3] * 13 + [1]
  for split, text in TEXTS.items():
    found = records(builder, split)
    assert ''.join(r['text'].decode() for r in found) == text
    assert all(r['text'] for r in found)
  names = [r['document'].decode() for r in records(builder, 'train')]
  assert names == [f'train {i}' for i in range(40)]


def test_counts_are_stored_with_the_licence(corpus, tmp_path):
  prepare(Lines(data_dir=tmp_path / 'data'), corpus)
  builder = Lines(data_dir=tmp_path / 'data')
  counts = {split: tuple(c.values()) for split, c in builder.counts.items()}
  assert tuple(builder.counts['train']) == text_builder.COUNTS
  assert text_builder.COUNTS == ('documents', 'tokens', 'characters', 'bytes')
  assert counts == {
    # Four words and a line end, forty times.
    'train': (40, 200, 790, 790),
    # The last line counts without a line end; ë has two bytes, € three.
    'valid': (1, 7, 14, 17),
    'test': (1, 3, 8, 8),
  }
  assert builder.info.redistribution_info.license == 'Public domain.'
  assert builder.info.citation == 'Nobody, 2018.'


def test_records_are_written_one_by_one(corpus, tmp_path, monkeypatch):
  # A builder that collects a split in memory writes no shard before its end.
  shards = []

  def on_document(self, index):
    shards.append(len(list(tmp_path.glob('data/lines/incomplete*/*train*'))))

  monkeypatch.setattr(Lines, 'on_document', on_document)
  prepare(Lines(data_dir=tmp_path / 'data'), corpus)
  train = shards[:40]
  assert train == [-(-index // 3) for index in range(40)]


def test_counts_must_equal_the_published(corpus, tmp_path, monkeypatch):
  for unit, count in {'documents': 1, 'characters': 14, 'tokens': 7}.items():
    monkeypatch.setattr(Lines, 'UNIT', unit)
    monkeypatch.setattr(Lines, 'PUBLISHED', {'valid': count})
    prepare(Lines(data_dir=tmp_path / unit), corpus)
  monkeypatch.setattr(Lines, 'PUBLISHED', {'valid': 1_008})
  with pytest.raises(
    DatasetError,
    match='valid split of lines has 7 tokens; the corpus has 1,008.*Needed',
  ):
    prepare(Lines(data_dir=tmp_path / 'data'), corpus)
  assert not any((tmp_path / 'data/lines').iterdir())


@pytest.mark.parametrize('error', [KeyboardInterrupt, MemoryError])
def test_an_interruption_leaves_no_files(corpus, tmp_path, monkeypatch, error):
  def on_document(self, index):
    if index == 20:
      raise error

  monkeypatch.setattr(Lines, 'on_document', on_document)
  with pytest.raises(error):
    prepare(Lines(data_dir=tmp_path / 'data'), corpus)
  assert not any((tmp_path / 'data/lines').iterdir())
  assert not Lines(data_dir=tmp_path / 'data').info.initialized


def test_every_file_is_checked_before_the_first_is_read(
  corpus, tmp_path, monkeypatch
):
  (corpus / 'test').write_text(' \n')
  monkeypatch.setattr(Lines, '_documents', None)  # must not be called
  with pytest.raises(DatasetError, match='test is empty'):
    prepare(Lines(data_dir=tmp_path / 'data'), corpus)


def test_builders_are_not_registered_with_tfds():
  # TFDS has a gigaword and would refuse to load a second one.
  assert not {'lines', 'gigaword'} & set(registered.list_imported_builders())
