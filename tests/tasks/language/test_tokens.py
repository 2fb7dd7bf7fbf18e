"""Tests rmc_jax/tasks/language/tokens.py."""

import gzip
import itertools
import os
import pathlib
import random
import tracemalloc

import pytest

from rmc_jax.tasks.language import tokens
from tests.reference import language as reference

NOVELS = pathlib.Path(os.environ.get('RMC_DATA', '')) / 'gutenberg-sample'


def split(text, style, **kwargs):
  return list(tokens.tokenize(text, style, **kwargs))


def test_hand_checked_lines():
  text = ' = Homarus = \n\n 0 @.@ 7 <unk>\tlobsters .'
  assert split(text, 'lines') == [
    *('=', 'Homarus', '=', '<eos>', '<eos>'),
    *('0', '@.@', '7', '<unk>', 'lobsters', '.', '<eos>'),
  ]
  assert split('', 'lines') == ['<eos>']
  assert split('\n', 'lines') == ['<eos>']
  # Only a line feed ends a line; str.splitlines would find four more.
  assert split('a\x0bb\x85c\u2028d\re', 'lines') == [*'abcde', '<eos>']


def test_hand_checked_words():
  text = "“Don’t,” she said--1,250.75 of 'em in 1815...\nyes; well-known\n"
  text += ' \n_3rd_!'
  assert split(text, 'words') == [
    *('“', 'Don’t', ',', '”', 'she', 'said', '--', '1,250.75', 'of', "'"),
    *('em', 'in', '1815', '...', 'yes', ';', 'well', '-', 'known'),
    *('<eos>', '_', '3rd', '_', '!'),
  ]
  assert split('', 'words') == []
  # One per blank line.
  assert split('\n\na\n\n\nb\n', 'words') == [
    *('<eos>', '<eos>', 'a', '<eos>', '<eos>', 'b'),
  ]


def test_hand_checked_word_lines():
  text = "PARIS (AP)\nIt isn't.\n\n-- 30 --"
  assert split(text, 'word_lines') == [
    *('PARIS', '(', 'AP', ')', '<eos>', 'It', "isn't", '.', '<eos>'),
    *('<eos>', '--', '30', '--', '<eos>'),
  ]
  assert split('', 'word_lines') == ['<eos>']


def test_hand_checked_whitespace():
  assert split(' anarchism originated\nas  a', 'whitespace') == [
    *('anarchism', 'originated', 'as', 'a'),
  ]
  assert split('', 'whitespace') == []


@pytest.mark.parametrize('style', tokens.STYLES)
def test_tokens_of_random_texts_equal_the_reference(style, monkeypatch):
  # Pieces of 7 characters cut each text in many places.
  monkeypatch.setattr(tokens, '_PIECE', 7)
  draw = random.Random(0)
  alphabet = 'abé東39²\n\n\r\t \u00a0\u3000.,.-\'’"_!@<>'
  for _ in range(1000):
    text = ''.join(draw.choices(alphabet, k=draw.randrange(60)))
    assert split(text, style) == reference.tokens(text, style), repr(text)


@pytest.mark.parametrize('style', tokens.STYLES)
def test_parts_that_end_with_a_line_have_the_same_tokens(style):
  draw = random.Random(0)
  for _ in range(200):
    lines = draw.choices(['\n', ' \t\n', "it's 3.5\n", ' a--b \r\n'], k=9)
    cut = draw.randrange(1, 9)
    parts = [''.join(lines[:cut]), ''.join(lines[cut:])]
    tokens_of_parts = [token for part in parts for token in split(part, style)]
    assert tokens_of_parts == split(''.join(lines), style)


@pytest.mark.parametrize('style', tokens.STYLES)
def test_only_white_space_is_dropped(style):
  text = 'ein Überfluß\nan _Zeichen_: 1.000,5 -- "so" …\n'
  joined = ''.join(token for token in split(text, style) if token != '<eos>')
  assert joined == ''.join(text.split())


@pytest.mark.parametrize('style', tokens.STYLES)
def test_lower_case_does_not_change_line_ends(style):
  text = 'An Ox\n\nAt DAWN'
  small = split(text, style, lower=True)
  assert small == [token.lower() for token in split(text, style)]
  assert 'dawn' in small


def test_counts_are_those_of_all_documents():
  counts = tokens.count(iter(['a B\nb a', 'b', '']), 'lines')
  assert counts == {'a': 2, 'B': 1, 'b': 2, '<eos>': 4}
  assert tokens.count(['a B\nb'], 'whitespace', lower=True) == {'a': 1, 'b': 2}


@pytest.mark.parametrize('style', tokens.STYLES)
def test_tokens_of_a_long_document_are_not_held_in_memory(style):
  # 400,000 tokens, on one line: as a list 3 MB and their characters 20 MB.
  text = 'abcdefg ' * 400_000
  tracemalloc.start()
  try:
    number = sum(1 for _ in tokens.tokenize(text, style))
    peak = tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()
  assert number == 400_000 + (style in ('lines', 'word_lines'))
  assert peak < 2 << 20


def test_tokens_are_made_lazily():
  stream = tokens.tokenize('a b ' * 10, 'whitespace')
  assert list(itertools.islice(stream, 3)) == ['a', 'b', 'a']
  assert next(stream) == 'b'


def test_an_unknown_style_is_refused_at_once():
  with pytest.raises(ValueError, match="style must be one of .* 'bpe'"):
    tokens.tokenize('a', 'bpe')


@pytest.mark.skipif(
  not NOVELS.is_dir(),
  reason='the folder RMC_DATA has no gutenberg-sample/',
)
def test_novels_have_their_published_number_of_words():
  table = {'train': 1_383_931, 'valid': 70_933, 'test': 83_283}
  for split, number in table.items():
    texts = [
      gzip.decompress(path.read_bytes()).decode()
      for path in sorted((NOVELS / split).glob('*.gz'))
    ]
    assert tokens.count(texts, 'whitespace').total() == number
    # The style for prose splits words further, keeps every character, and marks
    # the ends of paragraphs.
    words = tokens.count(texts, 'words')
    assert words[tokens.EOS] == sum(
      not line.strip() for text in texts for line in text.split('\n')[:-1]
    )
    assert words.total() > number
    letters = sum(len(w) * n for w, n in words.items() if w != tokens.EOS)
    assert letters == sum(len(''.join(text.split())) for text in texts)
