"""Tokenizes text piece by piece, and counts tokens."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
import re

from rmc_jax.checks import one_of

EOS = '<eos>'
STYLES = ('lines', 'words', 'word_lines', 'whitespace')

# Characters tokenized at a time, which bounds the tokens in memory.
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
  """Counts the tokens of documents, which are read once; see `tokenize`."""
  counts = collections.Counter()
  for document in documents:
    counts.update(tokenize(document, style, lower))
  return counts


def tokenize(text: str, style: str, lower: bool = False) -> Iterator[str]:
  """Yields the tokens of a document in order. No token contains white space.

  A document may be split after a line end: the tokens of its parts are those of
  the whole. For 'whitespace' and, within a paragraph, 'words' it may also be
  split after a space.

  Styles:
    'lines': words between white space, and `EOS` at the end of every line,
      also of blank ones: the published counts of WikiText and Penn Treebank.
    'words': words, numbers and punctuation of prose with wrapped lines, such as
      books. A blank line is an `EOS`; other line ends have no meaning. The
      paper states no rule, and the one of Rae et al. 2018 is not published.
    'word_lines': the same for text with a paragraph per line, such as GigaWord:
      `EOS` at the end of every line.
    'whitespace': words between white space and nothing else, for Text8, which
      has neither lines nor documents.
  Only a line feed ends a line. For 'lines' and 'word_lines' a last line without
  one counts too, so '' is a blank line. `lower` converts to lower case.

  Raises:
    ValueError: unknown style; raised before the first token is requested.
  """
  one_of('style', style, STYLES)
  return _tokens(text, style, lower)


def _tokens(text: str, style: str, lower: bool) -> Iterator[str]:
  eos_per_line = style in ('lines', 'word_lines')
  split = _WORD.findall if style in ('words', 'word_lines') else str.split
  for piece in _pieces(text):
    if lower:
      piece = piece.lower()
    if eos_per_line:
      piece = piece.replace('\n', f' {EOS} ')
    elif style == 'words':
      piece = _BLANK_LINE.sub(f' {EOS} ', piece)
    yield from split(piece)
  if eos_per_line and not text.endswith('\n'):
    yield EOS


def _pieces(text: str) -> Iterator[str]:
  """Cuts after runs of white space, so no token or blank line is split."""
  start = 0
  while start < len(text):
    space = _SPACE.search(text, start + _PIECE)
    stop = space.end() if space else len(text)
    yield text[start:stop]
    start = stop
