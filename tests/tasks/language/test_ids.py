"""Tests rmc_jax/tasks/language/ids.py."""

import gzip
import itertools
import json
import os
import pathlib
import tracemalloc

import numpy as np
import pytest

from rmc_jax.tasks.language import ids as ids_lib
from rmc_jax.tasks.language import tokens
from rmc_jax.tasks.language.ids import read_ids
from rmc_jax.tasks.language.ids import write_ids
from rmc_jax.tasks.language.vocabulary import Vocabulary
from tests.reference import language as reference

DOCUMENTS = ['the ox\nran\n', '\n', 'The ox, the ass\n']
DATA = pathlib.Path(os.environ.get('RMC_DATA', ''))
WIKITEXT = DATA / 'wikitext-2'


def vocabulary(style='lines', **kwargs):
  return Vocabulary.build(tokens.count(DOCUMENTS, style), **kwargs)


@pytest.mark.parametrize('style', tokens.STYLES)
@pytest.mark.parametrize('chunk', [2, 3, 1000])
def test_ids_are_those_of_all_documents_in_order(
  tmp_path, monkeypatch, style, chunk
):
  monkeypatch.setattr(ids_lib, '_CHUNK', chunk)
  v = vocabulary(style, max_size=5)
  path = tmp_path / 'train.ids'
  count = write_ids(path, iter(DOCUMENTS), v, style)
  words = itertools.chain.from_iterable(
    reference.tokens(document, style) for document in DOCUMENTS
  )
  expected = [v.ids.get(word, v.unk) for word in words]
  ids = read_ids(path, v)
  np.testing.assert_array_equal(ids, expected)
  assert count == len(ids) == len(expected)
  assert isinstance(ids, np.memmap)
  assert not ids.flags.writeable
  assert list(tmp_path.iterdir()) == [path]


def test_lower_case_is_applied(tmp_path):
  v = Vocabulary.build(tokens.count(DOCUMENTS, 'words', lower=True))
  write_ids(tmp_path / 'ids', DOCUMENTS, v, 'words', lower=True)
  assert v.decode(read_ids(tmp_path / 'ids', v)) == [
    *('the', 'ox', 'ran', '<eos>', 'the', 'ox', ',', 'the', 'ass'),
  ]


@pytest.mark.parametrize(
  'size, dtype', [(65_536, np.uint16), (65_537, np.int32)]
)
def test_ids_are_as_small_as_the_vocabulary_allows(tmp_path, size, dtype):
  words = ('<eos>', '<unk>', *(f'w{i}' for i in range(2, size)))
  v = Vocabulary(words, (1,) * size)
  document = f'w2 w{size - 1} x'
  write_ids(tmp_path / 'ids', [document], v, 'lines')
  ids = read_ids(tmp_path / 'ids', v)
  assert ids.dtype == dtype
  np.testing.assert_array_equal(ids, [2, size - 1, 1, 0])


@pytest.mark.parametrize(
  'documents, style', [([], 'lines'), (['', ' \n'], 'whitespace')]
)
def test_an_empty_split_is_an_error_and_leaves_no_file(
  tmp_path, documents, style
):
  with pytest.raises(ValueError, match='valid.ids: the split is empty. Check'):
    write_ids(tmp_path / 'valid.ids', documents, vocabulary(), style)
  assert not list(tmp_path.iterdir())


def test_a_failed_write_keeps_the_previous_file(tmp_path):
  v, path = vocabulary(), tmp_path / 'train.ids'
  write_ids(path, DOCUMENTS, v, 'lines')
  before = path.read_bytes()

  def documents():
    yield DOCUMENTS[0]
    raise OSError('the disk is gone')

  with pytest.raises(OSError, match='the disk is gone'):
    write_ids(path, documents(), v, 'lines')
  assert path.read_bytes() == before
  assert list(tmp_path.iterdir()) == [path]


def test_ids_of_another_vocabulary_are_refused(tmp_path):
  v, path = vocabulary(), tmp_path / 'train.ids'
  write_ids(path, DOCUMENTS, v, 'lines')
  other = vocabulary(max_size=5)
  message = r'train.ids .* another vocabulary .* of 5 words, .* Delete it'
  with pytest.raises(ValueError, match=message):
    read_ids(path, other)


def test_damaged_files_are_errors(tmp_path):
  v, path = vocabulary(), tmp_path / 'train.ids'
  with pytest.raises(ValueError, match='no ids at .*train.ids. Prepare'):
    read_ids(path, v)
  write_ids(path, DOCUMENTS, v, 'lines')
  whole = path.read_bytes()
  for content, message in [
    (whole[:-1], 'has 533 bytes; its 11 ids take 534. Delete it'),
    (whole + b'\0\0', 'has 536 bytes; its 11 ids take 534. Delete it'),
    (b'', "not a file of ids.* Got: b''. Delete it"),
    (bytes(600), 'not a file of ids'),
    (b'the ox\n', "not a file of ids.* Got: b'the ox"),
    (b'[1]' + whole[3:], 'not a file of ids'),
    (whole.replace(b'ids 1', b'ids 9'), 'not a file of ids'),
  ]:
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f'train.ids (is )?{message}'):
      read_ids(path, v)


def test_the_header_is_a_line_of_json(tmp_path):
  v, path = vocabulary(), tmp_path / 'train.ids'
  count = write_ids(path, DOCUMENTS, v, 'lines')
  with path.open('rb') as file:
    line = file.readline()
  assert len(line) == 512
  assert json.loads(line) == {
    'format': 'rmc_jax ids 1',
    'dtype': '<u2',
    'count': count,
    'vocabulary': v.digest,
  }


def test_a_long_text_is_not_held_in_memory(tmp_path):
  v = vocabulary()
  documents = (f'the ox ran {i}\n' * 100 for i in range(1000))
  tracemalloc.start()
  try:
    count = write_ids(tmp_path / 'ids', documents, v, 'lines')
    read_ids(tmp_path / 'ids', v)
    peak = tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()
  assert count == 500_000
  # As int32 they are 2 MB, as words 30 MB.
  assert peak < 1 << 20


@pytest.mark.skipif(
  not (WIKITEXT / 'train.txt.gz').is_file(),
  reason='the folder RMC_DATA has no wikitext-2/*.txt.gz',
)
def test_wikitext_2_has_the_published_counts(tmp_path):
  def documents(split):
    text = gzip.decompress((WIKITEXT / f'{split}.txt.gz').read_bytes())
    yield text.decode()

  v = Vocabulary.build(tokens.count(documents('train'), 'lines'))
  assert v.size == 33_278
  assert v.words[:3] == ('the', ',', '.')
  assert v.counts[v.unk] == 54_625
  assert v.counts[v.eos] == 36_718
  published = {'train': 2_088_628, 'valid': 217_646, 'test': 245_569}
  unknown = {'train': 54_625, 'valid': 11_718, 'test': 15_218}
  for split, count in published.items():
    path = tmp_path / f'{split}.ids'
    assert write_ids(path, documents(split), v, 'lines') == count
    ids = read_ids(path, v)
    assert ids.dtype == np.uint16
    assert len(ids) == count
    # The <unk> of the text; every other word is in the vocabulary.
    assert np.sum(ids == v.unk) == unknown[split]
  first = v.decode(read_ids(tmp_path / 'valid.ids', v)[:6])
  assert first == ['<eos>', '=', 'Homarus', 'gammarus', '=', '<eos>']
