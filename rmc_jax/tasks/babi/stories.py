"""Parses bAbI stories: the original text and its two JSON-lines mirrors.

The original text has a numbered line for each statement and question; numbers
start again at 1 with each story. A question has tabs before its answer and
before the numbers of the statements that support the answer:

  1 Mary moved to the bathroom.
  2 Where is Mary?<tab>bathroom<tab>1

Mirrors have one JSON object per line: a whole story,

  {"story": {"id": ["1", "2"], "type": [0, 1], "text": [...],
             "supporting_ids": [[], ["1"]], "answer": ["", "bathroom"]}}

or a question with the statements before it, without supporting facts:

  {"passage": "Mary moved to the bathroom.\n", "question": "Where is Mary?",
   "answer": "bathroom", "task": 1}

Weston et al. 2015, "Towards AI-complete question answering".
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import json
from typing import Any
from typing import NamedTuple

from rmc_jax.errors import ConfigurationError

Words = tuple[str, ...]


class Question(NamedTuple):
  """A question and the statements before it in its story.

  Attributes:
    statements: the words of each statement, the oldest first.
    words: the words of the question.
    answer: one symbol; a list of answers is one symbol too, such as
      'apple,milk'.
    supporting: indices of the statements that support the answer; empty if the
      file does not name them.
  """

  statements: tuple[Words, ...]
  words: Words
  answer: str
  supporting: tuple[int, ...]


class MalformedStory(ConfigurationError):
  """A line that is not part of a story; names the file and the line."""


def parse(lines: Iterable[str], name: str) -> list[Question]:
  """Parses a file in any of the three formats.

  Words are in lower case, without the full stop or question mark at the end.

  Args:
    lines: the lines of the file.
    name: the name of the file, for errors.

  Raises:
    MalformedStory: a line has another form, or there is no question.
  """
  numbered = enumerate(lines, 1)
  questions: list[Question] = []
  story = _Story()
  for number, line in numbered:
    if not line.strip():
      continue
    try:
      if line.lstrip().startswith('{'):
        questions += _parse_json(json.loads(line))
      elif question := story.read(line):
        questions.append(question)
    except (KeyError, TypeError, ValueError) as error:
      raise MalformedStory(
        f'{name}, line {number}: {_reason(error)}. Got: {line.strip()[:60]!r}. '
        'Fetch the file again.'
      ) from error
  if not questions:
    raise MalformedStory(f'{name} has no question. Fetch the file again.')
  return questions


class _Story:
  """The statements of a story, while its lines are read."""

  def __init__(self):
    self.statements: list[Words] = []
    self.index: dict[str, int] = {}  # number of a line -> index of a statement
    self.last = 0

  def read(self, line: str) -> Question | None:
    """Adds a line of the original text; returns the question it asks."""
    number, _, rest = line.strip().partition(' ')
    if not number.isascii() or not number.isdecimal():
      raise ValueError('expected the number of the line')
    if int(number) == 1:
      self.__init__()
    if int(number) != self.last + 1:
      raise ValueError(f'expected line {self.last + 1} of a story, or line 1')
    fields = rest.split('\t')
    if len(fields) == 1:
      return self.add(number, rest)
    if len(fields) != 3:
      raise ValueError('expected a question, its answer and supporting lines')
    text, answer, supporting = fields
    return self.add(number, text, answer, supporting.split())

  def add(
    self,
    number: str,
    text: str,
    answer: str | None = None,
    supporting: Iterable[str] = (),
  ) -> Question | None:
    """Adds a statement, or returns the question that has this answer."""
    self.last += 1
    words = _words(text)
    if answer is None:
      self.index[number] = len(self.statements)
      self.statements.append(words)
      return None
    if unknown := [each for each in supporting if each not in self.index]:
      raise ValueError(f'{unknown[0]} is no statement before the question')
    return Question(
      tuple(self.statements),
      words,
      _symbol(answer),
      tuple(self.index[each] for each in supporting),
    )


def _parse_json(content: Mapping[str, Any]) -> Iterator[Question]:
  """Yields the questions of one line of a mirror."""
  story = _Story()
  if 'passage' in content:
    statements = content['passage'].splitlines()
    for i, statement in enumerate(statements, 1):
      story.add(str(i), statement)
    question = story.add('', content['question'], content['answer'])
    assert question is not None
    yield question
    return
  columns = content['story']
  names = ('id', 'type', 'text', 'answer', 'supporting_ids')
  for number, kind, text, answer, supporting in zip(
    *(columns[name] for name in names), strict=True
  ):
    if kind not in (0, 1):
      raise ValueError('expected a type of 0, a statement, or 1, a question')
    question = story.add(number, text, answer if kind else None, supporting)
    if question:
      yield question


def _words(text: str) -> Words:
  words = tuple(
    text.strip().lower().removesuffix('.').removesuffix('?').split()
  )
  if not words:
    raise ValueError('expected words')
  return words


def _symbol(answer: str) -> str:
  symbol = answer.strip().lower()
  if not symbol or len(symbol.split()) != 1:
    raise ValueError('expected an answer of one symbol')
  return symbol


def _reason(error: Exception) -> str:
  if isinstance(error, KeyError):
    return f'expected a field {error}'
  if isinstance(error, TypeError):
    return 'expected a field of another type'
  return str(error).rstrip('.')
