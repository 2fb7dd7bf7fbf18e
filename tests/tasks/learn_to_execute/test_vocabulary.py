"""Tests rmc_jax/tasks/learn_to_execute/vocabulary.py."""

import pytest

from rmc_jax.tasks.learn_to_execute import vocabulary

AUTHORS = 'x=(12if34<56else7)for[8]x+=90'
PAPER = 'x = (12 - 345)\nprint(x % 10**length)'


def test_characters_have_the_authors_ids():
  v = vocabulary.characters()
  assert v.size == 45
  # From the authors' program.
  ids = {'|': 3, ' ': 4, '!': 5, '(': 6, ')': 7, '*': 8, '+': 9, '-': 10}
  ids |= {'.': 11, '/': 12, '0': 13, '9': 22, ':': 23, '<': 24, '=': 25}
  ids |= {'>': 26, '[': 27, ']': 28, 'a': 29, 'e': 30, 'else': 31, 'f': 32}
  ids |= {'for': 33, 'g': 34, 'i': 35, 'if': 36, 'l': 37, 'n': 38, 'o': 39}
  ids |= {'r': 40, 'range': 41, 's': 42, 'x': 43, '~': 44}
  assert {token: v.ids[token] for token in ids} == ids
  assert (v.pad, v.start) == (11, 44)


def test_characters_of_the_paper_follow_those_of_the_authors():
  v = vocabulary.characters('paper')
  assert v.tokens[:45] == vocabulary.characters().tokens
  assert v.tokens[45:] == ('\n', '%', 'h', 'p', 't')


def test_integers_follow_one_another():
  v = vocabulary.words('authors', 123)
  zero = v.ids['0']
  assert [v.ids[str(n)] for n in range(123)] == list(range(zero, zero + 123))
  assert v.size == zero + 123


@pytest.mark.parametrize('grammar', vocabulary.GRAMMARS)
def test_tokens_are_distinct(grammar):
  for v in (vocabulary.characters(grammar), vocabulary.words(grammar, 1000)):
    assert len(set(v.tokens)) == v.size == len(v.ids)


@pytest.mark.parametrize(
  'text, grammar', [(AUTHORS, 'authors'), (PAPER, 'paper')]
)
def test_decode_inverts_encode(text, grammar):
  for v in (vocabulary.characters(grammar), vocabulary.words(grammar, 400)):
    assert v.decode(v.encode(text)) == text
  assert len(vocabulary.characters(grammar).encode(text)) == len(text)


def test_keywords_and_integers_are_one_token():
  def split(text, grammar):
    v = vocabulary.words(grammar, 400)
    return [v.tokens[index] for index in v.encode(text)]

  assert split(AUTHORS, 'authors') == [
    *('x', '=', '(', '12', 'if', '34', '<', '56', 'else', '7', ')', 'for'),
    *('[', '8', ']', 'x', '+', '=', '90'),
  ]
  assert split('\nprint(x % 10**length)', 'paper') == [
    *('\n', 'print', '(', 'x', ' ', '%', ' ', '10', '*', '*', 'length', ')'),
  ]


def test_unknown_symbols_are_errors():
  with pytest.raises(ValueError, match="vocabulary of 45 .* Got: '%' in 'x%2'"):
    vocabulary.characters('authors').encode('x%2')
  with pytest.raises(ValueError, match="Got: '400' in '3.400'"):
    vocabulary.words('authors', 400).encode('3+400')
  with pytest.raises(ValueError, match="grammar must be one of .* 'basic'"):
    vocabulary.characters('basic')
  with pytest.raises(ValueError, match="grammar must be one of .* 'basic'"):
    vocabulary.words('basic', 10)
