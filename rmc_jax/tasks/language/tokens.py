"""Text cut into tokens, a piece at a time, and how often each token occurs."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
import re

EOS = '<eos>'
STYLES = ('lines', 'words', 'word_lines', 'whitespace')

# Characters cut at a time: however long a document is, only the tokens of this
# many are in memory at once.
_PIECE = 1 << 16
_SPACE = re.compile(r'\s+')
_BLANK_LINE = re.compile(r'^[^\S\n]*\n', re.MULTILINE)
# The end of a line; a word or number, with apostrophes inside it and with
# points and commas between its digits; a run of points or of hyphens; any other
# character.
_WORD = re.compile(
  EOS
  + r"|[^\W_]+(?:(?:['\u2019]|(?<=\d)[.,](?=\d))[^\W_]+)*"
  + r'|\.+|-+|[^\w\s]|_'
)


def count(
  documents: Iterable[str], style: str, lower: bool = False
) -> collections.Counter[str]:
  """How often each token occurs, for `Vocabulary.build`.

  Args:
    documents: of the training split, read once.
    style: as for `tokenize`.
    lower: as for `tokenize`.

  Returns:
    token -> its number.

  Raises:
    ValueError: an unknown style.
  """
  counts = collections.Counter()
  for document in documents:
    counts.update(tokenize(document, style, lower))
  return counts


def tokenize(text: str, style: str, lower: bool = False) -> Iterator[str]:
  """The tokens of one document, in order. No token has white space in it.

  A document may come in parts that end behind a line end: the tokens of the
  parts, one after the other, are those of the whole. 'whitespace' and, within
  a paragraph, 'words' can also be cut behind a space.

  Args:
    text: a document or a part of one: a line, an article, a book, a corpus.
    style: 'lines': what white space separates, and `EOS` at the end of every
      line, blank ones too: the published counts of WikiText and Penn Treebank.
      'words': words, numbers and punctuation of prose whose lines are wrapped,
      as books have them; a blank line is an `EOS`, other line ends mean
      nothing. Only white space is left out. The paper has no such rule; it
      follows Rae et al. 2018, whose rule is not published.
      'word_lines': the same where a paragraph is a line, as in GigaWord, with
      `EOS` at the end of every line.
      'whitespace': what white space separates and nothing else, for Text8,
      which has neither lines nor documents.
      Only a line feed ends a line. In 'lines' and 'word_lines' a last line
      without one counts, so documents that are lines need not have it: '' is a
      blank line.
    lower: whether to write all letters small.

  Returns:
    An iterator, which cuts the text as it goes.

  Raises:
    ValueError: an unknown style.
  """
  if style not in STYLES:
    raise ValueError(f'style must be one of {STYLES}. Got: {style!r}.')
  return _tokens(text, style, lower)


def _tokens(text: str, style: str, lower: bool) -> Iterator[str]:
  ended_lines = style in ('lines', 'word_lines')
  split = _WORD.findall if style in ('words', 'word_lines') else str.split
  for piece in _pieces(text):
    if lower:
      piece = piece.lower()
    if ended_lines:
      piece = piece.replace('\n', f' {EOS} ')
    elif style == 'words':
      piece = _BLANK_LINE.sub(f' {EOS} ', piece)
    yield from split(piece)
  if ended_lines and not text.endswith('\n'):
    yield EOS


def _pieces(text: str) -> Iterator[str]:
  """Cuts behind white space, all of it: no token and no blank line is split."""
  start = 0
  while start < len(text):
    space = _SPACE.search(text, start + _PIECE)
    stop = space.end() if space else len(text)
    yield text[start:stop]
    start = stop
