"""Samples of a task, drawn, written and answered on the device.

Letters: L digits of an integer at most, N operations of a program at most, Q
integers that an operation has beside its operand inside, n and m limbs of a
value and of an integer (see `arithmetic`).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.tasks.learn_to_execute import arithmetic
from rmc_jax.tasks.learn_to_execute import programs
from rmc_jax.tasks.learn_to_execute.task import Task
from rmc_jax.types import Array


class Level(NamedTuple):
  """How hard a sample is.

  Attributes:
    length: () integer in 1 .. L, digits of every integer in the text.
    nesting: () integer in 1 .. N, operations in one another.
  """

  length: Array | int
  nesting: Array | int


class Example(NamedTuple):
  """A text and what its answer is, as ids, padded behind their ends.

  Attributes:
    inputs: [task.input_steps] ids of the program or the integer.
    input_length: () integer, how many of them are no padding.
    targets: [task.target_steps] ids of the answer.
    target_length: () integer, how many of them are no padding.
  """

  inputs: Array
  input_length: Array
  targets: Array
  target_length: Array


class Program(NamedTuple):
  """What is drawn for a program; the operations from the innermost outwards.

  Attributes:
    operations: [N] indices into `task.operations`.
    positions: [N] which of the operands the operation inside is.
    signs: [N] 0 for <, 1 for >, of a comparison.
    repeats: [N] 1 .. 9, of a loop.
    integers: [N * Q + 1, L] digits, the highest first, of which the first
      `level.length` count: the Q of each operation, and the innermost operand.
  """

  operations: Array
  positions: Array
  signs: Array
  repeats: Array
  integers: Array


def sample(key: Array, task: Task, level: Level | None = None) -> Example:
  """Draws one example; `jax.vmap` over keys, and levels, for a batch.

  Integers are uniform among those of `level.length` digits, 0 not being one of
  them, operations uniform among the task's, and so are the operand that the
  operation inside is (grammar 'paper'), the sign of a comparison, and the 1 to
  9 turns of a loop (spec: `learn_to_execute.py` in Sonnet v1).

  Args:
    key: random key, consumed.
    task: what to draw.
    level: may be traced, and is then trusted to be within the maxima of the
      task; None for those.

  Returns:
    One `Example`.

  Raises:
    ValueError: a level of Python integers outside of the task's maxima.
  """
  maxima = Level(task.max_length, task.max_nesting)
  level = level or maxima
  for name, value, most in zip(Level._fields, level, maxima, strict=True):
    if isinstance(value, int | np.integer) and not 1 <= value <= most:
      raise ValueError(
        f'level.{name} must be in 1 .. {most}, the most of the task. Got: '
        f'{value}.'
      )
  if task.is_memory:
    digits = _digits(jax.random.bits(key, (task.max_length,)))
    return memorize(digits, task, level)
  program = draw(key, task)
  digits, count = arithmetic.last_digits(
    run(program, task, level), level.length + 1, task.max_length + 1
  )
  return Example(*write(program, task, level), *integer(digits, count, task))


def memorize(digits: Array, task: Task, level: Level) -> Example:
  """An integer, and it again, or its digits in reverse, or twice in a row.

  Args:
    digits: [L], the highest first.
    task: one of memorization.
    level: as for `sample`.

  Returns:
    One `Example`.
  """
  length = level.length
  if task.name == 'double':
    places = np.arange(2 * task.max_length) % length
    answer = integer(digits[places], 2 * length, task)
  elif task.name == 'reverse':
    places = length - 1 - np.arange(task.max_length)
    answer = integer(digits[jnp.maximum(places, 0)], length, task)
  else:
    answer = integer(digits, length, task)
  return Example(*integer(digits, length, task), *answer)


def integer(
  digits: Array, count: Array | int, task: Task
) -> tuple[Array, Array]:
  """The ids of an integer, and how many of them are no padding.

  Args:
    digits: [D], the highest first.
    count: () integer, how many of them are the integer's.
    task: has the vocabulary.

  Returns:
    [D] or, with words, [1] ids; and a () integer.
  """
  ids = _tokens(digits, count, task)
  num_ids = jnp.int32(count if task.tokens == 'characters' else 1)
  padding = np.arange(ids.shape[0]) >= num_ids
  return jnp.where(padding, task.vocabulary.pad, ids), num_ids


def _tokens(digits: Array, count: Array | int, task: Task) -> Array:
  """[..., D] ids of digits; with words, [..., 1] of the first `count`."""
  zero = task.vocabulary.ids['0']  # the ids of integers follow one another
  if task.tokens == 'characters':
    return zero + digits
  value = jnp.zeros(digits.shape[:-1], jnp.int32)
  for place in range(digits.shape[-1]):
    value = jnp.where(place < count, value * 10 + digits[..., place], value)
  return zero + value[..., None]


def draw(key: Array, task: Task) -> Program:
  """Draws a program that is good for any level; consumes `key`."""
  n, q = task.max_nesting, _num_beside(task)
  bits = jax.random.bits(key, (4 * n + (n * q + 1) * task.max_length,))
  choices = bits[: 4 * n].reshape(4, n)
  operations = _below(len(task.operations), choices[0])
  num_positions = jnp.array(_num_positions(task), jnp.uint32)[operations]
  return Program(
    operations=operations,
    positions=_below(num_positions, choices[1]),
    signs=_below(2, choices[2]),
    repeats=1 + _below(9, choices[3]),
    integers=_digits(bits[4 * n :].reshape(-1, task.max_length)),
  )


def _below(limit: Array | int, bits: Array) -> Array:
  """Random bits as integers 0 .. limit - 1, uniform to within 2^-28."""
  return (bits % jnp.uint32(limit)).astype(jnp.int32)


def _digits(bits: Array) -> Array:
  """Random bits [..., L] as digits, the highest first, which is never 0."""
  first = np.arange(bits.shape[-1]) == 0
  return jnp.where(first, 1 + _below(9, bits), _below(10, bits))


def run(program: Program, task: Task, level: Level) -> Array:
  """The value of a program: [n] limbs."""
  integers = arithmetic.from_digits(program.integers, level.length)
  beside = integers[:-1].reshape(task.max_nesting, _num_beside(task), -1)
  value = arithmetic.widen(integers[-1], arithmetic.num_limbs(task.largest))
  for index in range(task.max_nesting):
    terms = [
      _terms(operation, index, value, beside[index], program)
      for operation in task.operations
    ]
    factor, count, other = (
      jax.lax.select_n(program.operations[index], *cases)
      for cases in zip(*terms, strict=True)
    )
    outer = arithmetic.multiply_add(value, factor, count, other)
    value = jnp.where(index < level.nesting, outer, value)
  return value


def _terms(
  operation: str, index: int, inside: Array, beside: Array, program: Program
) -> tuple[Array, Array, Array]:
  """An operation as inside * factor + count * other.

  Args:
    operation: which.
    index: where it stands in the program.
    inside: [n] the value of the operand inside.
    beside: [Q, m] the other operands.
    program: has the choices.

  Returns:
    The terms, [m], () and [m].
  """
  position = program.positions[index]
  first, last = beside[0], beside[-1]
  if operation == 'multiply':
    return first, jnp.int32(0), first
  if operation == 'add':
    factor, count, other = 1, 1, first
  elif operation == 'subtract':
    factor = jnp.where(position == 0, 1, -1)
    count, other = -factor, first
  elif operation == 'for':
    repeats = program.repeats[index]
    factor = jnp.where(position == 0, 1, repeats)
    count = jnp.where(position == 0, repeats, 1)
    other = first
  else:
    holds = _holds(inside, beside, position, program.signs[index])
    factor = jnp.where(position == jnp.where(holds, 0, 3), 1, 0)
    count, other = 1 - factor, jnp.where(holds, first, last)
  factor = arithmetic.widen(jnp.int32(factor)[None], first.shape[0])
  return factor, jnp.int32(count), other


def _holds(inside: Array, beside: Array, position: Array, sign: Array) -> Array:
  """Whether the comparison of A if B < C else D holds: () bool."""
  a_or_b, b_or_c, c_or_d = arithmetic.widen(beside, inside.shape[0])
  left = jnp.where(position == 0, a_or_b, b_or_c)
  left = jnp.where(position == 1, inside, left)
  right = jnp.where(position == 3, c_or_d, b_or_c)
  right = jnp.where(position == 2, inside, right)
  return arithmetic.less(
    jnp.where(sign == 0, left, right), jnp.where(sign == 0, right, left)
  )


def write(program: Program, task: Task, level: Level) -> tuple[Array, Array]:
  """The text of a program.

  It is 2 N + 1 parts in a row: before and behind the operation inside, for
  every operation, and the innermost operand. Every part is a row of a table, so
  that each step of the text has to find only its part and its place there.

  Args:
    program: of `draw`.
    task: as for `sample`.
    level: as for `sample`.

  Returns:
    [task.input_steps] ids, and how many of them are no padding.
  """
  n = task.max_nesting
  # What the codes of `programs` stand for: of each operation, and of the
  # innermost operand, which has no sign and no digit.
  signs = jnp.array([task.vocabulary.ids[sign] for sign in '<>'])
  integers = _tokens(program.integers, level.length, task)
  drawn = jnp.concatenate(
    [
      signs[program.signs][:, None],
      task.vocabulary.ids['0'] + program.repeats[:, None],
      integers[:-1].reshape(n, -1),
    ],
    axis=1,
  )  # [N, codes]
  num_codes = drawn.shape[1]
  drawn = jnp.concatenate([drawn.reshape(-1), jnp.pad(integers[-1], (2, 0))])

  table, sizes = map(jnp.array, _parts(task))  # [texts, L, steps], [texts, L]
  variants = np.cumsum([0, *_num_positions(task)])
  depths = level.nesting - 1 - np.arange(n)
  before = jnp.array(variants)[program.operations] + program.positions
  before = before * n + jnp.maximum(depths, 0)
  num_before = int(variants[-1]) * n
  parts = [(before[index], index) for index in reversed(range(n))]
  parts += [(2 * num_before, n)]
  parts += [(num_before + before[index], index) for index in range(n)]

  length = level.length - 1 if sizes.shape[1] > 1 else 0
  steps = np.arange(task.input_steps)
  places = first_codes = jnp.zeros_like(steps)
  end = jnp.int32(0)
  for text, index in parts:
    row = text * sizes.shape[1] + length
    here = steps >= end
    places = jnp.where(here, row * table.shape[-1] + steps - end, places)
    first_codes = jnp.where(here, index * num_codes, first_codes)
    used = index == n or depths[index] >= 0
    end += jnp.where(used, sizes.reshape(-1)[row], 0)
  ids = table.reshape(-1)[places]
  ids = jnp.where(ids < 0, drawn[first_codes - 1 - ids], ids)
  return jnp.where(steps < end, ids, task.vocabulary.pad), end


@functools.cache
def _parts(task: Task) -> tuple[np.ndarray, np.ndarray]:
  """The tokens of all parts of programs, and how many each part has.

  Returns:
    [texts, lengths, steps] codes and [texts, lengths] numbers of them. Texts
    are before and behind the operand inside, of every operation and operand, at
    every depth; the last is the innermost operand. Lengths are those of an
    integer, in words only 1.
  """
  slots = task.integer_tokens
  sides = [
    programs.around(operation, task.grammar, depth, position)
    for operation, num_positions in zip(
      task.operations, _num_positions(task), strict=True
    )
    for position in range(num_positions)
    for depth in range(task.max_nesting)
  ]
  texts = [side[0] for side in sides] + [side[1] for side in sides] + ['A']
  parts = [
    programs.encode(text, task.vocabulary, length, slots)
    for text in texts
    for length in range(1, slots + 1)
  ]
  sizes = np.array([len(part) for part in parts], np.int32)
  codes = np.zeros((len(parts), sizes.max()), np.int32)
  for row, part in zip(codes, parts, strict=True):
    row[: len(part)] = part
  return codes.reshape(len(texts), slots, -1), sizes.reshape(len(texts), slots)


def _num_positions(task: Task) -> list[int]:
  """Of each operation, how many operands may be the operation inside."""
  return [programs.positions(name, task.grammar) for name in task.operations]


def _num_beside(task: Task) -> int:
  """Q: the most operands of an operation without the one inside."""
  return max(programs.NUM_OPERANDS[name] for name in task.operations) - 1
