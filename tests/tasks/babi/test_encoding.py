"""Tests rmc_jax/tasks/babi/encoding.py."""

import os
import pathlib
import tarfile

import numpy as np
import pytest

from rmc_jax.tasks import babi

TEXT = """\
1 Mary moved.
2 John got the apple there.
3 Mary got the milk.
4 What does Mary carry?\tapple,milk\t2 3
1 Fred left.
2 Where is Fred?\toffice\t1
"""
BABI = pathlib.Path(os.environ.get('RMC_DATA', '')) / 'babi'
needs_babi = pytest.mark.skipif(
  not BABI.is_dir(), reason='the folder RMC_DATA has no babi/'
)


def questions():
  return babi.parse(TEXT.splitlines(), 'text')


def test_newest_statement_is_first():
  vocabulary = babi.Vocabulary.build(questions())
  encoded = babi.encode(questions(), vocabulary)
  assert vocabulary.symbols[0] == '<nil>'
  assert vocabulary.size == 1 + 17
  assert encoded.story.shape == (2, 3, 5)
  assert [vocabulary.decode(words) for words in encoded.story[0]] == [
    'mary got the milk',
    'john got the apple there',
    'mary moved',
  ]
  assert [vocabulary.decode(words) for words in encoded.story[1]] == [
    'fred left',
    '',
    '',
  ]
  assert encoded.length.tolist() == [3, 1]
  assert vocabulary.decode(encoded.question[1]) == 'where is fred'
  assert vocabulary.decode(encoded.answer) == 'apple,milk office'
  assert encoded.supporting.tolist() == [
    [2, 1, 0],
    [1, 0, 0],
  ]


def test_oldest_statements_are_dropped():
  vocabulary = babi.Vocabulary.build(questions())
  encoded = babi.encode(questions(), vocabulary, memory_size=1, sentence_size=7)
  assert encoded.story.shape == (2, 1, 7)
  assert vocabulary.decode(encoded.story[0, 0]) == 'mary got the milk'
  assert encoded.length.tolist() == [1, 1]
  assert encoded.supporting.tolist() == [[2], [1]]


def test_digest_ignores_supporting_facts_alone():
  vocabulary = babi.Vocabulary.build(questions())
  digest = babi.encode(questions(), vocabulary).digest()
  bare = [each._replace(supporting=()) for each in questions()]
  assert babi.encode(bare, vocabulary).digest() == digest
  assert babi.encode(questions()[::-1], vocabulary).digest() != digest
  wider = babi.encode(questions(), vocabulary, sentence_size=6)
  assert wider.digest() != digest


def test_what_does_not_fit_is_refused():
  vocabulary = babi.Vocabulary.build(questions()[1:])
  with pytest.raises(ValueError, match=r'is not in the vocabulary'):
    babi.encode(questions(), vocabulary)
  with pytest.raises(ValueError, match=r'at least 5, .* Got: 4'):
    babi.encode(
      questions(), babi.Vocabulary.build(questions()), sentence_size=4
    )


@needs_babi
@pytest.mark.parametrize('archive, symbols', [('en', 174), ('en-10k', 176)])
def test_published_vocabulary(archive, symbols):
  # Sukhbaatar et al. 2015 have 177 symbols, nil included, in en-10k.
  splits = []
  with tarfile.open(BABI / f'babi-{archive}.tar.gz') as tar:
    for name in tar.getnames():
      if f'/{archive}/' in name and name.endswith('.txt'):
        lines = tar.extractfile(name).read().decode().splitlines()
        splits.append(babi.parse(lines, name))
        train = len(lines) and 'train' in name and archive == 'en-10k'
        assert len(splits[-1]) == (10_000 if train else 1000)
  assert len(splits) == {'en': 40, 'en-10k': 39}[archive]
  vocabulary = babi.Vocabulary.build(*splits)
  assert vocabulary.size == symbols + 1
  longest = max(
    len(words)
    for split in splits
    for question in split
    for words in (*question.statements, question.words)
  )
  assert longest == 11


@needs_babi
def test_length_of_the_memory():
  with tarfile.open(BABI / 'babi-en.tar.gz') as tar:
    (name,) = [n for n in tar.getnames() if 'qa3_' in n and 'train' in n]
    lines = tar.extractfile(name).read().decode().splitlines()
  questions = babi.parse(lines, name)
  encoded = babi.encode(questions, babi.Vocabulary.build(questions))
  assert encoded.story.shape[1] == 50
  assert sum(len(each.statements) > 50 for each in questions) == 377
  assert (encoded.length <= 50).all()
  np.testing.assert_array_equal(
    encoded.length, (encoded.story > 0).any(-1).sum(-1)
  )
