"""The tokens of programs and answers, and their ids."""

import dataclasses
import functools
import re

from rmc_jax.checks import one_of

START = '~'
PAD = '.'
GRAMMARS = ('authors', 'paper')

# In the order of the authors' ids 0 to 44. Their programs never use the first
# six, '/', ':', 'a', 'g', 'n' and 'range', nor whole keywords if every
# character is a token.
_AUTHORS = (
  *('<unknown>', '<null>', '<end>', '|', ' ', '!'),
  *'()*+-./0123456789:<=>[]',
  *('a', 'e', 'else', 'f', 'for', 'g', 'i', 'if', 'l', 'n', 'o', 'r'),
  *('range', 's', 'x', START),
)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Distinct tokens in the order of their ids."""

  tokens: tuple[str, ...]
  whole_words: bool = False  # else every character is a token

  @property
  def size(self) -> int:
    """The number of tokens."""
    return len(self.tokens)

  @functools.cached_property
  def ids(self) -> dict[str, int]:
    """The id of every token."""
    return {token: index for index, token in enumerate(self.tokens)}

  @property
  def pad(self) -> int:
    """The id of the padding after the end of a text."""
    return self.ids[PAD]

  @property
  def start(self) -> int:
    """The id fed to a decoder before the first token of an answer."""
    return self.ids[START]

  def encode(self, text: str) -> list[int]:
    """The ids of a program or an answer.

    Raises:
      ValueError: `text` has a token outside of the vocabulary.
    """
    tokens = self._split.findall(text)
    unknown = [token for token in tokens if token not in self.ids]
    if unknown:
      raise ValueError(
        f'text must have tokens of the vocabulary of {self.size} only. Got: '
        f'{unknown[0]!r} in {text!r}.'
      )
    return [self.ids[token] for token in tokens]

  def decode(self, ids) -> str:
    """The text of an iterable of ids; the inverse of `encode`."""
    return ''.join(self.tokens[index] for index in ids)

  @functools.cached_property
  def _split(self) -> re.Pattern:
    words = []
    if self.whole_words:
      words = [t for t in self.tokens if len(t) > 1 and not t.isdigit()]
      words = [r'\d+', *map(re.escape, words)]
    return re.compile('|'.join([*words, '.']), re.DOTALL)


@functools.cache
def characters(grammar: str = 'authors') -> Vocabulary:
  """The vocabulary with one token per character.

  'authors' has the 45 ids of `learn_to_execute.py` in Sonnet v1, in its order;
  in 'paper' the other characters of the paper's figure 6 follow as 45 to 49.
  Another grammar is a ValueError.
  """
  one_of('grammar', grammar, GRAMMARS)
  extra = ('\n', '%', 'h', 'p', 't') if grammar == 'paper' else ()
  return Vocabulary(_AUTHORS + extra)


@functools.cache
def words(grammar: str, num_integers: int) -> Vocabulary:
  """The vocabulary with one token per keyword, integer or other symbol.

  The integers 0 .. num_integers - 1 come last and in order, so the id of n is
  the id of 0 plus n. Another grammar than 'authors' or 'paper' is a ValueError.
  """
  one_of('grammar', grammar, GRAMMARS)
  extra = ('\n', '%', 'print', 'length') if grammar == 'paper' else ()
  symbols = tuple(token for token in _AUTHORS if not token.isdigit())
  integers = tuple(map(str, range(num_integers)))
  return Vocabulary(symbols + extra + integers, whole_words=True)
