"""Tests rmc_jax/tasks/learn_to_execute/task.py."""

import random

import pytest

from rmc_jax.tasks.learn_to_execute import Task
from rmc_jax.tasks.learn_to_execute import task as module
from rmc_jax.tasks.learn_to_execute.task import OPERATIONS
from tests.reference import learn_to_execute as reference


def test_the_operations_of_the_authors_tasks():
  assert {name: set(names) for name, names in OPERATIONS.items()} == {
    'addition': {'add'},
    'algebra': {'add', 'subtract', 'multiply'},
    'control': {'if', 'for'},
    'algebra_control': {'add', 'subtract', 'if'},
    'program': {'add', 'subtract', 'multiply', 'if', 'for'},
  }


@pytest.mark.parametrize('tokens', module.TOKENS)
@pytest.mark.parametrize('grammar', ['authors', 'paper'])
@pytest.mark.parametrize('name', OPERATIONS)
def test_steps_are_those_of_the_longest_program(name, grammar, tokens):
  rng = random.Random(0)
  length = 2 if tokens == 'words' else 3
  for nesting in (1, 2, 3):
    task = Task(name, length, nesting, grammar, tokens)
    trees = [
      reference.generate(rng, OPERATIONS[name], length, nesting, grammar)
      for _ in range(1000)  # of at most 5^3 nestings of three operations
    ]
    texts = [reference.show(tree, grammar) for tree in trees]
    answers = [reference.answer(tree, length) for tree in trees]
    encode = task.vocabulary.encode
    assert max(len(encode(text)) for text in texts) == task.input_steps
    assert max(len(encode(text)) for text in answers) == task.target_steps


def test_steps_of_memorization():
  sizes = {}
  for name in module.MEMORIZATION:
    task = Task(name, 7)
    assert task.is_memory
    assert task.operations == ()
    sizes[name] = task.input_steps, task.target_steps
  assert sizes == {'copy': (7, 7), 'reverse': (7, 7), 'double': (7, 14)}
  words = Task('double', 3, tokens='words')
  assert (words.input_steps, words.target_steps) == (1, 1)
  assert not Task('addition', 3).is_memory


@pytest.mark.parametrize('name', OPERATIONS)
def test_largest_bounds_all_values(name):
  rng = random.Random(1)
  for length, nesting in ((1, 3), (2, 2)):
    task = Task(name, length, nesting, 'paper')
    values = []
    for _ in range(3000):
      tree = reference.generate(rng, OPERATIONS[name], length, nesting, 'paper')
      while isinstance(tree, list):  # also values of nested operations
        values.append(abs(reference.value(tree)))
        tree = next((x for x in tree if isinstance(x, list)), 0)
    assert max(values) <= task.largest
  # Reached if every digit is 9.
  assert Task('addition', 2, 3).largest == 4 * 99
  assert Task('algebra', 2, 3).largest == 99**4
  assert Task('control', 1, 2).largest == 9 * (9 + 81) + 9


def test_words_include_exactly_the_answers():
  # Three integers below 100; 10^3 if values may be negative.
  assert Task('addition', 2, 2, tokens='words').vocabulary.tokens[-1] == '297'
  assert Task('algebra', 2, tokens='words').vocabulary.tokens[-1] == '999'
  assert Task('copy', 2, tokens='words').vocabulary.tokens[-1] == '99'
  assert Task('double', 2, tokens='words').vocabulary.tokens[-1] == '9999'
  task = Task('copy', 2, tokens='words', num_integers=123)
  assert task.vocabulary.tokens[-1] == '122'


@pytest.mark.parametrize(
  'settings, message',
  [
    ({'name': 'division'}, "task must be one of .*double.* 'division'"),
    ({'grammar': 'basic'}, "grammar must be one of .* Got: 'basic'"),
    ({'tokens': 'bytes'}, "tokens must be one of .* Got: 'bytes'"),
    ({'max_length': 0}, 'max_length must be at least 1. Got: 0'),
    ({'max_nesting': 0}, 'max_nesting must be at least 1. Got: 0'),
    ({'name': 'copy', 'max_nesting': 2}, "'copy' memor.* max_nesting=2"),
    ({'name': 'copy', 'grammar': 'paper'}, "'copy' memor.*='paper'"),
    ({'name': 'program', 'max_length': 85}, 'most 84 .* 32 bits.* Got: 85'),
    ({'num_integers': 100}, "needs tokens='words'. Got: .*=100"),
    (
      {'tokens': 'words', 'max_length': 4, 'num_integers': 10_000},
      'num_integers must be at least 19999, .* Got: 10000',
    ),
    (
      {'name': 'algebra', 'tokens': 'words', 'max_length': 7},
      'answers below 100000000; 10000000 integers are the most',
    ),
    ({'name': 'reverse', 'tokens': 'words'}, "'reverse' may begin with 0"),
  ],
)
def test_invalid_settings_are_errors(settings, message):
  with pytest.raises(ValueError, match=message):
    Task(**{'name': 'addition', 'max_length': 3} | settings)


def test_a_length_that_is_not_an_integer_is_an_error():
  with pytest.raises(
    TypeError, match='max_length must be an integer. Got: 2.0'
  ):
    Task('addition', max_length=2.0)


def test_longest_integers():
  assert Task('program', 84).target_steps == 85
  assert Task('addition', 200).target_steps == 201  # nothing to multiply
