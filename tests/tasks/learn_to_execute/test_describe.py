"""Tests rmc_jax/tasks/learn_to_execute/describe.py."""

import jax
import numpy as np
import pytest

from rmc_jax.tasks.learn_to_execute import Difficulty
from rmc_jax.tasks.learn_to_execute import Example
from rmc_jax.tasks.learn_to_execute import sample
from rmc_jax.tasks.learn_to_execute import Task
from rmc_jax.tasks.learn_to_execute.describe import describe

PAPER = Task('program', 5, 2, grammar='paper')
AUTHORS = Task('program', 5, 2)
COPY = Task('copy', 4)

LOOP = """x = (
  x = 76957
  for[7]
    x += 62117)
for[8]
  x += 90285
print(x % 10**length)"""
SUBTRACTION = 'x = (44198 - 86707) - 66521\nprint(x % 10**length)'

PAPER_TEXT = """\
Task program: 2 of 3 examples.

1.
program     x = (
              x = 76957
              for[7]
                x += 62117)
            for[8]
              x += 90285
            print(x % 10**length)
answer      234056
prediction  234156
               ^
            1 of 6 characters wrong.

2.
program     x = (44198 - 86707) - 66521
            print(x % 10**length)
answer      890970
prediction  890970
            Right.

Accuracy: 12 of 13 characters (92.3%).
Sequence accuracy: 2 of 3 answers (66.7%)."""


COPY_TEXT = """\
Task copy: 3 of 3 examples.

1.
input       1234
answer      1234
prediction  else9.4
            ^^^^^^
            3 of 4 characters wrong.

2.
input       5678
answer      5678
prediction  5 78
             ^
            1 of 4 characters wrong.

3.
input       9
answer      9
prediction  8
            ^
            1 of 1 character wrong.

Accuracy: 4 of 9 characters (44.4%).
Sequence accuracy: 0 of 3 answers (0.0%)."""


def test_programs_with_predictions():
  examples = batch(
    PAPER,
    (LOOP, '234056'),
    (SUBTRACTION, '890970'),
    ('x = 4 + (1 + 3)\nprint(x % 10**length)', '8'),
  )
  # Tokens after the end of an answer, here x9, are ignored.
  predictions = ids(PAPER, ['234156', '890970', '8x9'], PAPER.target_steps)
  assert describe(PAPER, examples, predictions, limit=2) == PAPER_TEXT


def test_all_characters_of_a_wrong_token_are_marked():
  examples = batch(COPY, ('1234', '1234'), ('5678', '5678'), ('9', '9'))
  predictions = ids(COPY, ['0000', '5 78', '8'], COPY.target_steps)
  predictions[0] = [COPY.vocabulary.ids[t] for t in ('else', '9', '.', '4')]
  assert describe(COPY, examples, predictions) == COPY_TEXT


def test_without_predictions():
  examples = batch(AUTHORS, ('12+34', '46'), ('12*(34-35)', '988'))
  # The task has no program like the second, which the interpreter accepts.
  assert describe(AUTHORS, examples).split('\n') == [
    'Task program: 2 of 2 examples.',
    '',
    '1.',
    'program     12+34',
    'answer      46',
    '',
    '2.',
    'program     12*(34-35)',
    'answer      988',
  ]


def test_a_predicted_line_feed_is_escaped():
  examples = batch(PAPER, ('x = 4 + 3\nprint(x % 10**length)', '7'))
  text = describe(PAPER, examples, ids(PAPER, ['\n'], PAPER.target_steps))
  assert (
    r"""
prediction  \n
            ^^
            1 of 1 character wrong.
"""
    in text
  )


def test_words_are_counted_as_tokens():
  task = Task('addition', 2, 1, tokens='words')
  examples = batch(task, ('12+34', '46'), ('50+60', '110'))
  text = describe(task, examples, ids(task, ['45', '110'], 1))
  assert (
    """
answer      46
prediction  45
            ^^
            1 of 1 token wrong.
"""
    in text
  )
  assert text.endswith(
    'Accuracy: 1 of 2 tokens (50.0%).\n'
    'Sequence accuracy: 1 of 2 answers (50.0%).'
  )


@pytest.mark.parametrize(
  'program, answer, problem',
  [
    ('12+34', '45', 'its program gives 46.'),
    ('12-34', '78', 'its program gives 978.'),  # modulo 10^3, not 10^2
    ('-', '0', "Not a program: at position 0, after '', expected"),
    ('12+', '12', 'Not a program: at position 3'),
  ],
)
def test_a_wrong_sample_is_reported(program, answer, problem):
  text = describe(AUTHORS, batch(AUTHORS, (program, answer)))
  assert f'\n            The sample itself is wrong: {problem}' in text


@pytest.mark.parametrize('task', [AUTHORS, PAPER, COPY])
def test_samples_of_all_difficulties_are_right(task):
  nesting = 1 + np.arange(60) % task.max_nesting
  difficulty = Difficulty(1 + np.arange(60) % task.max_length, nesting)
  examples = jax.jit(jax.vmap(lambda key, d: sample(key, task, d)))(
    jax.random.split(jax.random.key(0), 60), difficulty
  )
  text = describe(task, examples, examples.targets, limit=60)
  assert text.count('Right.') == 60
  assert 'wrong' not in text
  assert text == describe(task, examples, examples.targets, limit=60)


def test_invalid_arguments_are_errors():
  examples = batch(COPY, ('1234', '1234'), ('5678', '5678'))
  with pytest.raises(ValueError, match='limit must be at least 1. Got: 0'):
    describe(COPY, examples, limit=0)
  with pytest.raises(ValueError, match=r'inputs \[B, T_in\].* \(7,\)'):
    describe(COPY, jax.tree.map(lambda leaf: leaf[0], examples))
  with pytest.raises(ValueError, match=r'shape \(2, 4\) .* Got: \(2, 3\)'):
    describe(COPY, examples, examples.targets[:, :3])
  with pytest.raises(ValueError, match='predictions .* 0 to 44,.* Got: 45'):
    describe(COPY, examples, np.full((2, 4), 45))
  with pytest.raises(ValueError, match='inputs must be ids .* Got: -1'):
    describe(COPY, examples._replace(inputs=-np.ones((2, 4), int)))


def ids(task, texts, steps):
  """[len(texts), steps], padded."""
  rows = np.full([len(texts), steps], task.vocabulary.pad)
  for row, text in zip(rows, texts, strict=True):
    encoded = task.vocabulary.encode(text)
    row[: len(encoded)] = encoded
  return rows


def batch(task, *pairs):
  """Examples of these programs and answers."""
  programs, answers = zip(*pairs, strict=True)

  def lengths(texts):
    return np.array([len(task.vocabulary.encode(text)) for text in texts])

  return Example(
    ids(task, programs, max(lengths(programs)) + 3),
    lengths(programs),
    ids(task, answers, task.target_steps),
    lengths(answers),
  )
