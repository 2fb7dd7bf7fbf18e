"""Tests rmc_jax/tasks/babi/stories.py."""

import json
import random

import pytest

from rmc_jax.tasks import babi
from rmc_jax.tasks.babi.stories import MalformedStory

TEXT = """\
1 Mary moved to the bathroom.
2 John got the apple there.
3 Where is Mary? \tbathroom\t1
4 Mary got the milk.
5 What does Mary carry?\tApple,milk\t4 2
1 Fred left.
2 Where is Fred?\toffice\t1
"""
STORIES = [
  {
    'id': ['1', '2', '3', '4', '5'],
    'type': [0, 0, 1, 0, 1],
    'text': [
      'Mary moved to the bathroom.',
      'John got the apple there.',
      'Where is Mary? ',
      'Mary got the milk.',
      'What does Mary carry?',
    ],
    'supporting_ids': [[], [], ['1'], [], ['4', '2']],
    'answer': ['', '', 'bathroom', '', 'Apple,milk'],
  },
  {
    'id': ['1', '2'],
    'type': [0, 1],
    'text': ['Fred left.', 'Where is Fred?'],
    'supporting_ids': [[], ['1']],
    'answer': ['', 'office'],
  },
]
MOVED = ('mary', 'moved', 'to', 'the', 'bathroom')
GOT = ('john', 'got', 'the', 'apple', 'there')
MILK = ('mary', 'got', 'the', 'milk')
QUESTIONS = [
  babi.Question((MOVED, GOT), ('where', 'is', 'mary'), 'bathroom', (0,)),
  babi.Question(
    (MOVED, GOT, MILK), ('what', 'does', 'mary', 'carry'), 'apple,milk', (2, 1)
  ),
  babi.Question((('fred', 'left'),), ('where', 'is', 'fred'), 'office', (0,)),
]


def as_passages(questions):
  for question in questions:
    yield json.dumps(
      {
        'passage': ''.join(
          f'{" ".join(words).capitalize()}.\n' for words in question.statements
        ),
        'question': ' '.join(question.words) + '? ',
        'answer': question.answer,
        'task': 8,
      }
    )


def test_parses_the_original_text():
  assert babi.parse(TEXT.splitlines(), 'qa8') == QUESTIONS
  # Windows line ends and blank lines.
  text = TEXT.replace('\n', '\r\n') + '\r\n'
  assert babi.parse(text.split('\n'), 'qa8') == QUESTIONS


def test_parses_whole_stories_in_json():
  lines = [json.dumps({'story': story}) for story in STORIES]
  assert babi.parse(lines, 'train.jsonl') == QUESTIONS


def test_parses_passages_in_json_without_supporting_facts():
  parsed = babi.parse(as_passages(QUESTIONS), 'train.jsonl')
  assert parsed == [each._replace(supporting=()) for each in QUESTIONS]


@pytest.mark.parametrize(
  'line, text, reason',
  [
    (1, '2 Mary left.', 'expected line 1 of a story'),
    (3, '2 Where is Mary?\tbathroom\t1', 'expected line 3 of a story, or'),
    (3, 'Where is Mary?\tbathroom\t1', 'expected the number of the line'),
    (3, '3 Where is Mary?\tbathroom', 'expected a question, its answer'),
    (3, '3 Where is Mary?\tbathroom\t1\t2', 'expected a question, its answer'),
    (3, '3 Where is Mary?\tbathroom\t3', '3 is no statement before'),
    (3, '3 Where is Mary?\t\t1', 'expected an answer of one symbol'),
    (3, '3 Where is Mary?\tthe bathroom\t1', 'expected an answer of one'),
    (4, '4', 'expected words'),
    (4, '4 .', 'expected words'),
    (4, '{"story": {}}', "expected a field 'id'"),
    (4, '{"story": 3}', 'expected a field of another type'),
    (4, '{"story": ', 'Expecting value'),
  ],
)
def test_malformed_lines_are_named(line, text, reason):
  lines = TEXT.splitlines()
  lines[line - 1] = text
  with pytest.raises(MalformedStory, match=f'qa8, line {line}: {reason}'):
    babi.parse(lines, 'qa8')


def test_story_without_a_question_is_refused():
  with pytest.raises(MalformedStory, match='qa8 has no question'):
    babi.parse(TEXT.splitlines()[:2], 'qa8')


@pytest.mark.parametrize('seed', range(300))
def test_damaged_files_are_parsed_or_refused(seed):
  generator = random.Random(seed)
  lines = [*TEXT.splitlines(), json.dumps({'story': STORIES[0]})]
  for _ in range(generator.randint(1, 3)):
    line = generator.randrange(len(lines))
    characters = list(lines[line])
    start = generator.randrange(len(characters) or 1)
    characters[start : start + generator.randint(0, 4)] = generator.choice(
      ['', '\t', ' ', '1', '?', '{', '"', 'é', '\x00', '[]', '.']
    )
    lines[line] = ''.join(characters)
  try:
    questions = babi.parse(lines, 'damaged')
  except MalformedStory:
    with pytest.raises(
      MalformedStory, match=r'^damaged(, line \d+:| has no q)'
    ):
      babi.parse(lines, 'damaged')
    return
  for question in questions:
    assert question.answer
    assert question.words
    assert all(question.statements)
    assert all(
      0 <= index < len(question.statements) for index in question.supporting
    )
