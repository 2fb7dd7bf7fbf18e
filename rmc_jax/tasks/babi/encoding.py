"""Encodes bAbI questions as arrays of ids.

Id 0 is nil, which pads sentences and memories. The most recent statement has
position 0, as the temporal encoding of Sukhbaatar et al. 2015 counts backwards
from the question.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
from typing import NamedTuple

import numpy as np

from rmc_jax.tasks.babi.stories import Question

NIL = '<nil>'
MEMORY_SIZE = 50  # Statements that the paper remembers.


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Symbols in the order of their ids.

  Attributes:
    symbols: distinct, `NIL` first.
  """

  symbols: tuple[str, ...]

  @classmethod
  def build(cls, *splits: Iterable[Question]) -> 'Vocabulary':
    """Collects words and answers in alphabetical order.

    Like the authors' code, which counts test symbols too, although no test
    symbol is missing in training of most tasks.

    Args:
      *splits: the questions of training and test, of one task or of several.
    """
    symbols = {
      symbol
      for question in (each for split in splits for each in split)
      for words in (*question.statements, question.words, (question.answer,))
      for symbol in words
    }
    return cls((NIL, *sorted(symbols)))

  @property
  def size(self) -> int:
    """The number of symbols, nil included."""
    return len(self.symbols)

  @functools.cached_property
  def ids(self) -> dict[str, int]:
    """The id of every symbol."""
    return {symbol: index for index, symbol in enumerate(self.symbols)}

  def decode(self, ids: Iterable[int]) -> str:
    """Returns the words of a sentence, joined by spaces; without nil."""
    return ' '.join(self.symbols[index] for index in ids if index)


class Questions(NamedTuple):
  """Encoded questions, [N, ...].

  Attributes:
    story: [N, M, J] ids of the words of the most recent statements, the newest
      first; 0 pads both axes.
    length: [N] the number of statements, at most M.
    question: [N, J] ids of the words of the question.
    answer: [N] id of the answer.
    supporting: [N, M] 1, 2, ... for the statements that support the answer, in
      the order of the file, and 0 for the others.
  """

  story: np.ndarray
  length: np.ndarray
  question: np.ndarray
  answer: np.ndarray
  supporting: np.ndarray

  def digest(self) -> str:
    """Returns the SHA-256 digest of all but `supporting`.

    Equal for equal questions, whichever format they were read from; one of the
    mirrors does not name the supporting statements.
    """
    hashed = hashlib.sha256()
    for array in (self.story, self.length, self.question, self.answer):
      hashed.update(str(array.shape).encode())
      hashed.update(np.ascontiguousarray(array, np.int32).tobytes())
    return hashed.hexdigest()


def encode(
  questions: Sequence[Question],
  vocabulary: Vocabulary,
  *,
  memory_size: int | None = None,
  sentence_size: int | None = None,
) -> Questions:
  """Encodes questions.

  Args:
    questions: N questions.
    vocabulary: has all their symbols.
    memory_size: M; older statements are dropped. None for the longest story,
      at most `MEMORY_SIZE`.
    sentence_size: J; None for the longest sentence.

  Raises:
    ValueError: a sentence is longer than `sentence_size`, or a symbol is not in
      the vocabulary.
  """
  longest_story = max(len(each.statements) for each in questions)
  longest_sentence = max(
    len(words) for each in questions for words in (*each.statements, each.words)
  )
  if memory_size is None:
    memory_size = min(longest_story, MEMORY_SIZE)
  if sentence_size is None:
    sentence_size = longest_sentence
  if longest_sentence > sentence_size:
    raise ValueError(
      f'sentence_size must be at least {longest_sentence}, the words of the '
      f'longest sentence. Got: {sentence_size}.'
    )
  total = len(questions)
  # 10,000 long stories take 20 MB as bytes.
  small = np.min_scalar_type(vocabulary.size)
  result = Questions(
    story=np.zeros((total, memory_size, sentence_size), small),
    length=np.zeros(total, np.int32),
    question=np.zeros((total, sentence_size), small),
    answer=np.zeros(total, np.int32),
    supporting=np.zeros((total, memory_size), np.uint8),
  )
  ids = vocabulary.ids
  try:
    for n, each in enumerate(questions):
      kept = each.statements[-memory_size:]
      result.length[n] = len(kept)
      for position, words in enumerate(reversed(kept)):
        result.story[n, position, : len(words)] = [ids[word] for word in words]
      result.question[n, : len(each.words)] = [ids[w] for w in each.words]
      result.answer[n] = ids[each.answer]
      for order, index in enumerate(each.supporting, 1):
        if (position := len(each.statements) - 1 - index) < memory_size:
          result.supporting[n, position] = order
  except KeyError as error:
    raise ValueError(
      f'{error} is not in the vocabulary. Build it from these questions too.'
    ) from error
  return result
