"""Tests rmc_jax/tasks/learn_to_execute/sample.py."""

import collections
import functools
import itertools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.tasks.learn_to_execute import Difficulty
from rmc_jax.tasks.learn_to_execute import OPERATIONS
from rmc_jax.tasks.learn_to_execute import sample
from rmc_jax.tasks.learn_to_execute import Task
from rmc_jax.tasks.learn_to_execute.sample import Program
from rmc_jax.tasks.learn_to_execute.sample import run
from rmc_jax.tasks.learn_to_execute.sample import write
from tests.reference import learn_to_execute as reference

PROGRAMS = [
  Task(name, 2 if tokens == 'words' else 5, 3, grammar, tokens)
  for name in OPERATIONS
  for grammar in ('authors', 'paper')
  for tokens in ('characters', 'words')
]
EXAMPLES = 2000


def draw(task, num_examples=EXAMPLES, difficulty=None):
  """Examples of a difficulty, or of uniform ones; and their difficulties."""
  keys = jax.random.split(jax.random.key(0), num_examples)
  if difficulty is None:
    rng = np.random.default_rng(0)
    difficulty = Difficulty(
      jnp.array(rng.integers(1, task.max_length + 1, num_examples)),
      jnp.array(rng.integers(1, task.max_nesting + 1, num_examples)),
    )
  else:
    difficulty = Difficulty(*(jnp.full(num_examples, x) for x in difficulty))
  examples = jax.jit(jax.vmap(lambda key, d: sample(key, task, d)))(
    keys, difficulty
  )
  return examples, difficulty


def texts(task, ids, lengths):
  """Decodes ids, and checks their padding."""
  assert ids.dtype == jnp.int32
  ids, lengths = np.asarray(ids), np.asarray(lengths)
  padding = np.arange(ids.shape[1]) >= lengths[:, None]
  assert (ids[padding] == task.vocabulary.pad).all()
  assert (ids[~padding] != task.vocabulary.pad).all()
  return [
    task.vocabulary.decode(row[:length])
    for row, length in zip(ids, lengths, strict=True)
  ]


@pytest.mark.parametrize(
  'task', PROGRAMS, ids=lambda x: f'{x.name}-{x.grammar}-{x.tokens}'
)
def test_answers_are_the_values_of_the_programs(task):
  examples, difficulties = draw(task)
  assert examples.inputs.shape == (EXAMPLES, task.input_steps)
  assert examples.targets.shape == (EXAMPLES, task.target_steps)
  inputs = texts(task, examples.inputs, examples.input_length)
  targets = texts(task, examples.targets, examples.target_length)
  for text, target, length, nesting in zip(
    inputs, targets, *map(np.asarray, difficulties), strict=True
  ):
    tree = reference.parse(text)
    assert reference.show(tree, task.grammar) == text
    assert reference.answer(tree, int(length)) == target
    links = reference.chain(tree)
    assert len(links) == nesting
    assert {name for name, _, _ in links} <= set(task.operations)
    if task.grammar == 'authors':
      assert {where for _, where, _ in links} <= {0, None}
    assert {len(str(x)) for x in reference.integers(tree)} == {length}


@pytest.mark.parametrize('name', ['copy', 'reverse', 'double'])
def test_memorization(name):
  task = Task(name, 7)
  examples, difficulties = draw(task)
  inputs = texts(task, examples.inputs, examples.input_length)
  targets = texts(task, examples.targets, examples.target_length)
  assert {len(text) for text in inputs} == set(range(1, 8))
  for text, target, length in zip(
    inputs, targets, np.asarray(difficulties.length), strict=True
  ):
    assert len(text) == length
    assert text[0] != '0'
    expected = {'copy': text, 'reverse': text[::-1], 'double': text + text}
    assert target == expected[name]
  if name == 'reverse':
    assert any(target[0] == '0' for target in targets)


@pytest.mark.parametrize('name', ['copy', 'double'])
def test_memorization_of_words(name):
  task = Task(name, 2, tokens='words')
  examples, _ = draw(task)
  assert examples.inputs.shape == examples.targets.shape == (EXAMPLES, 1)
  inputs = texts(task, examples.inputs, examples.input_length)
  targets = texts(task, examples.targets, examples.target_length)
  assert {len(text) for text in inputs} == {1, 2}
  times = 2 if name == 'double' else 1
  assert targets == [text * times for text in inputs]


@pytest.mark.parametrize('grammar', ['authors', 'paper'])
def test_programs_of_nines(grammar):
  """Every nesting of three operations, with the largest integers."""
  task = Task('program', 6, 3, grammar)
  links = [
    (index, position, sign)
    for index, name in enumerate(task.operations)
    for position in range(
      1 if grammar == 'authors' else reference.OPERANDS[name]
    )
    for sign in ((0, 1) if name == 'if' else (0,))
  ]
  nests = np.array(list(itertools.product(links, repeat=3)))  # [P, 3, 3]
  num = len(nests)
  programs = Program(
    *jnp.array(np.moveaxis(nests, 2, 0)),
    repeats=jnp.full((num, 3), 9),
    integers=jnp.full((num, 3 * 3 + 1, 6), 9),
  )
  largest = Difficulty(6, 3)
  ids, lengths = jax.jit(jax.vmap(lambda p: write(p, task, largest)))(programs)
  limbs = np.asarray(
    jax.jit(jax.vmap(lambda p: run(p, task, largest)))(programs)
  )
  values = set()
  for text, row in zip(texts(task, ids, lengths), limbs.tolist(), strict=True):
    value = reference.value(reference.parse(text))
    base = 10_000 ** len(row)
    assert sum(x * 10_000**i for i, x in enumerate(row)) == value % base
    assert abs(value) <= task.largest < base / 2
    values.add(value)
  assert max(values) == task.largest == (10**6 - 1) ** 4
  assert min(values) < -(10**11)  # a difference, multiplied
  assert lengths.max() == task.input_steps


@pytest.mark.parametrize('grammar', ['authors', 'paper'])
def test_programs_have_the_distribution_of_the_reference(grammar):
  num, length, nesting = 6000, 2, 2
  task = Task('program', length, nesting, grammar)
  examples, _ = draw(task, num, Difficulty(length, nesting))
  ours = [
    reference.parse(text)
    for text in texts(task, examples.inputs, examples.input_length)
  ]
  rng = random.Random(0)
  theirs = [
    reference.generate(rng, task.operations, length, nesting, grammar)
    for _ in range(num)
  ]
  views = {
    'operations and nested operands': lambda tree: [
      tuple(link[:2] for link in reference.chain(tree))
    ],
    'signs and repeats with their places': lambda tree: [
      (depth, *link)
      for depth, link in enumerate(reference.chain(tree))
      if link[2]
    ],
    'each operand of each operation': lambda tree: [
      (tree[0], place, operand // 10)
      for place, operand in enumerate(tree[1:5])
      if isinstance(operand, int) and operand >= 10
    ],
    'units': lambda tree: [x % 10 for x in reference.integers(tree)],
    'answers': lambda tree: [
      len(reference.answer(tree, length)),
      reference.value(tree) < 0,
    ],
  }
  for name, view in views.items():
    assert_same_distribution(
      collections.Counter(x for tree in ours for x in view(tree)),
      collections.Counter(x for tree in theirs for x in view(tree)),
      name,
    )


def assert_same_distribution(a, b, name):
  """The two-sample chi-square test, at five standard deviations."""
  kinds = set(a) | set(b)
  total_a, total_b = sum(a.values()), sum(b.values())
  statistic = sum(
    (a[x] * (total_b / total_a) ** 0.5 - b[x] * (total_a / total_b) ** 0.5) ** 2
    / (a[x] + b[x])
    for x in kinds
  )
  freedom = len(kinds) - 1
  assert freedom > 0
  limit = freedom + 5 * (2 * freedom) ** 0.5
  assert statistic < limit, f'{name}: {statistic:.1f} of {limit:.1f} at most'


def test_integers_are_uniform_among_those_of_their_length():
  task = Task('copy', 3)
  examples, _ = draw(task, 9000, Difficulty(3, 1))
  values = [int(x) for x in texts(task, examples.inputs, examples.input_length)]
  assert min(values) == 100
  assert max(values) == 999
  counts = np.bincount(values, minlength=1000)[100:]
  # Chi-square of 900 kinds, 10 of each expected: mean 899, deviation 42.
  assert abs(((counts - 10) ** 2 / 10).sum() - 899) < 5 * 42.4
  one, _ = draw(Task('copy', 1), 9000, Difficulty(1, 1))
  digits = np.asarray(one.inputs)[:, 0] - task.vocabulary.ids['0']
  counts = np.bincount(digits, minlength=10)
  assert counts[0] == 0  # integers of one digit are 1 to 9
  # Binomial with p = 1/9: 5 standard deviations.
  assert abs(counts[1:] - 1000).max() < 5 * np.sqrt(9000 * 8 / 81)


def test_an_example_depends_only_on_its_key_and_difficulty():
  task = Task('program', 3, 2, 'paper')
  keys = jax.random.split(jax.random.key(3), 8)
  make = functools.partial(sample, task=task)
  single = jax.jit(make)
  batch = jax.jit(jax.vmap(make))(keys)
  devices = jax.pmap(jax.vmap(make))(keys.reshape(4, 2))
  for index in range(8):
    one = single(keys[index])
    for x, y, z in zip(one, batch, devices, strict=True):
      np.testing.assert_array_equal(x, y[index])
      np.testing.assert_array_equal(x, z[index // 2, index % 2])
  assert len({tuple(row) for row in np.asarray(batch.inputs).tolist()}) == 8
  traced = jax.jit(lambda key, d: sample(key, task, d))
  for x, y in zip(
    traced(keys[0], Difficulty(3, 2)), single(keys[0]), strict=True
  ):
    np.testing.assert_array_equal(x, y)


def test_difficulties_beyond_the_task_are_refused():
  task = Task('addition', 3, 2)
  key = jax.random.key(0)
  with pytest.raises(ValueError, match=r'length must be in 1 .. 3, .* Got: 4'):
    sample(key, task, Difficulty(4, 1))
  with pytest.raises(ValueError, match=r'nesting must be in 1 .. 2, .* Got: 0'):
    sample(key, task, Difficulty(3, 0))
