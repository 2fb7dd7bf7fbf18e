"""The symbols of programs and answers, and their integer ids."""

import dataclasses
import functools
import re

START = '~'
PAD = '.'
GRAMMARS = ('authors', 'paper')

# In the order of the authors' ids 0 to 44. Never used by their programs: the
# first six, '/', ':', 'a', 'g', 'n', 'range'; and, when every character is a
# token, the whole keywords.
_AUTHORS = (
  *('<unknown>', '<null>', '<end>', '|', ' ', '!'),
  *'()*+-./0123456789:<=>[]',
  *('a', 'e', 'else', 'f', 'for', 'g', 'i', 'if', 'l', 'n', 'o', 'r'),
  *('range', 's', 'x', START),
)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Tokens in the order of their ids.

  Attributes:
    tokens: all different.
    whole_words: whether keywords and integers are one token each; otherwise
      every character is.
  """

  tokens: tuple[str, ...]
  whole_words: bool = False

  @property
  def size(self) -> int:
    """How many tokens there are."""
    return len(self.tokens)

  @functools.cached_property
  def ids(self) -> dict[str, int]:
    """The id of every token."""
    return {token: index for index, token in enumerate(self.tokens)}

  @property
  def pad(self) -> int:
    """The id that fills what lies beyond the end of a text."""
    return self.ids[PAD]

  @property
  def start(self) -> int:
    """The id that a decoder is fed before the first token of an answer."""
    return self.ids[START]

  def encode(self, text: str) -> list[int]:
    """The ids of `text`.

    Args:
      text: a program or an answer.

    Returns:
      One id a token.

    Raises:
      ValueError: a token of `text` is not in the vocabulary.
    """
    tokens = self._split.findall(text)
    unknown = [token for token in tokens if token not in self.ids]
    if unknown:
      raise ValueError(
        f'the vocabulary of {self.size} tokens has no {unknown[0]!r}, which '
        f'occurs in {text!r}.'
      )
    return [self.ids[token] for token in tokens]

  def decode(self, ids) -> str:
    """The text of `ids`, any iterable of integers; undoes `encode`."""
    return ''.join(self.tokens[index] for index in ids)

  @functools.cached_property
  def _split(self) -> re.Pattern:
    if not self.whole_words:
      return re.compile('.', re.DOTALL)
    words = [
      re.escape(token)
      for token in self.tokens
      if len(token) > 1 and not token.isdigit()
    ]
    return re.compile('|'.join([r'\d+', *words, '.']), re.DOTALL)


@functools.cache
def characters(grammar: str = 'authors') -> Vocabulary:
  """One token a character.

  Args:
    grammar: 'authors': the 45 ids of `learn_to_execute.py` in Sonnet v1, in
      its order. 'paper': the characters of the paper's figure 6 that are not
      among those follow as ids 45 to 49.

  Returns:
    The vocabulary.

  Raises:
    ValueError: an unknown grammar.
  """
  check_grammar(grammar)
  extra = ('\n', '%', 'h', 'p', 't') if grammar == 'paper' else ()
  return Vocabulary(_AUTHORS + extra)


@functools.cache
def words(grammar: str, num_integers: int) -> Vocabulary:
  """One token a keyword, a whole integer or any other symbol.

  The integers come last and in order, so the id of n is the id of 0 plus n.

  Args:
    grammar: 'authors': the authors' symbols without their ten digits.
      'paper': 'print' and 'length', line break and '%' as well.
    num_integers: the integers are 0 .. num_integers - 1.

  Returns:
    The vocabulary.

  Raises:
    ValueError: an unknown grammar.
  """
  check_grammar(grammar)
  extra = ('\n', '%', 'print', 'length') if grammar == 'paper' else ()
  symbols = tuple(token for token in _AUTHORS if not token.isdigit())
  integers = tuple(map(str, range(num_integers)))
  return Vocabulary(symbols + extra + integers, whole_words=True)


def check_grammar(grammar: str) -> None:
  """Raises ValueError unless `grammar` is one of `GRAMMARS`."""
  if grammar not in GRAMMARS:
    raise ValueError(f'grammar must be one of {GRAMMARS}. Got: {grammar!r}.')
