"""Tests rmc_jax/tasks/language/vocabulary.py."""

import random

import numpy as np
import pytest

from rmc_jax.tasks.language.vocabulary import Vocabulary
from tests.reference import language as reference

COUNTS = {'d': 1, 'the': 9, 'b': 2, '<eos>': 4, 'c': 2, 'a': 2}


def test_words_are_ordered_by_frequency_then_alphabetically():
  v = Vocabulary.build(COUNTS)
  assert v.words == ('the', '<eos>', 'a', 'b', 'c', 'd', '<unk>')
  assert v.counts == (9, 4, 2, 2, 2, 1, 0)
  assert (v.size, v.eos, v.unk) == (7, 1, 6)


def test_unknown_has_the_counts_of_words_left_out():
  v = Vocabulary.build(COUNTS, max_size=4)
  assert v.words == ('the', '<unk>', '<eos>', 'a')
  assert v.counts == (9, 5, 4, 2)
  # A text that has the symbol, and a minimum count in place of a maximum size.
  v = Vocabulary.build({**COUNTS, 'N': 3}, unknown='N', min_count=2)
  assert v.words == ('the', '<eos>', 'N', 'a', 'b', 'c')
  assert v.counts == (9, 4, 4, 2, 2, 2)
  assert v.unk == 2


@pytest.mark.parametrize('max_size', [2, 3, 17, 40, 1000])
def test_vocabulary_equals_the_reference(max_size):
  draw = random.Random(0)
  words = [f'w{draw.randrange(50)}' for _ in range(300)] + ['<eos>'] * 13
  words += ['<unk>'] * 7
  draw.shuffle(words)
  counts = {word: words.count(word) for word in words}
  v = Vocabulary.build(counts, max_size)
  expected = reference.ranked(words, max_size)
  assert list(zip(v.words, v.counts, strict=True)) == expected
  assert sum(v.counts) == len(words)
  assert v.size <= max_size
  # The order of the text does not matter.
  assert v == Vocabulary.build(dict(sorted(counts.items())), max_size)


def test_decode_inverts_encode_except_for_unknown_words():
  v = Vocabulary.build(COUNTS, max_size=6)
  ids = v.encode(iter(['the', 'zebra', 'a', '<eos>', 'd']))
  assert ids.dtype == np.int32
  np.testing.assert_array_equal(ids, [0, v.unk, 2, 1, v.unk])
  assert v.decode(ids) == ['the', '<unk>', 'a', '<eos>', '<unk>']
  assert v.decode(v.encode(v.words)) == list(v.words)
  assert v.encode([]).shape == (0,)


def test_digest_depends_on_words_order_and_unknown():
  v = Vocabulary(('a', 'b', '<eos>', '<unk>'), (4, 3, 2, 1))
  others = [
    Vocabulary(('b', 'a', '<eos>', '<unk>'), (4, 3, 2, 1)),
    Vocabulary(('a', '<eos>', '<unk>'), (4, 3, 2)),
    Vocabulary(('ab', '<eos>', '<unk>'), (4, 3, 2)),
    Vocabulary(('a', 'b', '<eos>', '<unk>'), (4, 3, 2, 1), unknown='b'),
  ]
  assert len({v.digest, *(other.digest for other in others)}) == 5
  # But not on the counts, which do not affect ids of a given order.
  assert Vocabulary(v.words, (9, 8, 7, 6)).digest == v.digest


def test_save_and_load_round_trip(tmp_path):
  counts = {**COUNTS, 'é東': 2, '#': 1, 'N': 1}
  for v in (Vocabulary.build(counts), Vocabulary.build(counts, 5, 'N')):
    v.save(tmp_path / 'words.txt')
    assert Vocabulary.load(tmp_path / 'words.txt') == v
  assert [path.name for path in tmp_path.iterdir()] == ['words.txt']
  lines = (tmp_path / 'words.txt').read_text('utf-8').splitlines()
  assert lines[:3] == ['rmc_jax vocabulary\tN', 'the\t9', 'N\t7']


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', "first line must begin with 'rmc_jax vocabulary'. Got: ''"),
    (b'the 9\n', "first line must .* Got: 'the 9'"),
    (b'<eos>\t2\nb\n', "line 3: expected a new word.* Got: 'b'"),
    (b'<eos>\t2\nb\t-1\n', r"line 3: .* Got: 'b\\t-1'"),
    (b'<eos>\t2\n<eos>\t1\n', 'line 3: expected a new word'),
    (b'\t2\n', 'line 2: expected a new word'),
    (b'<unk>\t1\n', "no line for '<eos>'"),
    (b'<eos>\t1\nb', "line 3: .* Got: 'b'"),
    (b'b\xe9b\t1\n', r'not UTF-8: byte 26 is 0xe9'),
  ],
)
def test_a_damaged_file_is_an_error_with_its_line(tmp_path, content, message):
  path = tmp_path / 'words.txt'
  if message.startswith('first'):
    path.write_bytes(content)
  else:
    path.write_bytes(b'rmc_jax vocabulary\t<unk>\n' + content)
  with pytest.raises(ValueError, match=f'words.txt.*{message}') as error:
    Vocabulary.load(path)
  assert 'Delete it' in str(error.value)


def test_a_missing_file_is_an_error(tmp_path):
  with pytest.raises(ValueError, match='no vocabulary at .*words.txt. Prepare'):
    Vocabulary.load(tmp_path / 'words.txt')


def test_invalid_arguments_are_errors():
  with pytest.raises(ValueError, match='max_size must be at least 2.* Got: 1'):
    Vocabulary.build(COUNTS, max_size=1)
  with pytest.raises(ValueError, match="unknown must not be '<eos>'"):
    Vocabulary.build(COUNTS, unknown='<eos>')
  with pytest.raises(ValueError, match='the training split is empty. Check'):
    Vocabulary.build({})
