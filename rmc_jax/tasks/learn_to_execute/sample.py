"""Draws samples of a task, writes them as text and answers them on the device.

Letters: L most digits of an integer, N most operations of a program, Q most
operands of an operation besides the nested one, n and m limbs of a value and of
an integer (see `arithmetic`).
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


class Difficulty(NamedTuple):
  """The difficulty of a sample, () integers."""

  length: Array | int  # 1 .. L, digits of every integer in the text
  nesting: Array | int  # 1 .. N, nested operations


class Example(NamedTuple):
  """A text and its answer as ids, padded at their ends.

  Lengths are () integers, the number of ids before the padding.
  """

  inputs: Array  # [task.input_steps] ids of the program or the integer
  input_length: Array
  targets: Array  # [task.target_steps] ids of the answer
  target_length: Array

  @property
  def target_mask(self) -> Array:
    """[..., task.target_steps] booleans, False for padding."""
    last = self.targets.ndim - 1
    steps = jax.lax.broadcasted_iota(jnp.int32, self.targets.shape, last)
    return steps < self.target_length[..., None]


class Program(NamedTuple):
  """The random choices of a program, from the innermost operation outwards.

  Only the first `difficulty.length` digits of an integer count.
  """

  operations: Array  # [N] indices into `task.operations`
  positions: Array  # [N] indices of the nested operand
  signs: Array  # [N] of a comparison, 0 for <, 1 for >
  repeats: Array  # [N] of a loop, 1 .. 9
  # [N * Q + 1, L] digits, highest first: Q integers for each operation, then
  # the innermost operand.
  integers: Array


def sample(
  key: Array, task: Task, difficulty: Difficulty | None = None
) -> Example:
  """Draws one example; `jax.vmap` over keys, and difficulties, for a batch.

  Integers are uniform among those of `difficulty.length` digits, without 0.
  Operations are uniform among the task's, and so are the nested operand
  (grammar 'paper'), the sign of a comparison, and the 1 to 9 repeats of a loop
  (`learn_to_execute.py` in Sonnet v1). Consumes `key`; without a difficulty it
  takes the task's maxima.

  Raises:
    ValueError: the difficulty is beyond the task's maxima and not traced.
  """
  maxima = Difficulty(task.max_length, task.max_nesting)
  difficulty = difficulty or maxima
  for name, value, most in zip(maxima._fields, difficulty, maxima, strict=True):
    if isinstance(value, int | np.integer) and not 1 <= value <= most:
      raise ValueError(
        f'difficulty.{name} must be in 1 .. {most}, the maximum of the task. '
        f'Got: {value}.'
      )
  if task.is_memory:
    digits = _digits(jax.random.bits(key, (task.max_length,)))
    return memorize(digits, task, difficulty)
  program = draw(key, task)
  digits, count = arithmetic.last_digits(
    run(program, task, difficulty), difficulty.length + 1, task.max_length + 1
  )
  return Example(
    *write(program, task, difficulty), *integer(digits, count, task)
  )


def memorize(digits: Array, task: Task, difficulty: Difficulty) -> Example:
  """An integer [L], highest digit first, and the answer of the task."""
  length = count = difficulty.length
  places = np.arange(task.max_length)
  if task.name == 'double':
    places, count = np.arange(2 * task.max_length) % length, 2 * length
  elif task.name == 'reverse':
    places = jnp.maximum(length - 1 - places, 0)
  return Example(
    *integer(digits, length, task), *integer(digits[places], count, task)
  )


def integer(
  digits: Array, count: Array | int, task: Task
) -> tuple[Array, Array]:
  """The padded ids of the first `count` of digits [D], and their number.

  There are D ids, or for words 1.
  """
  ids = _tokens(digits, count, task)
  num_ids = jnp.int32(count if task.tokens == 'characters' else 1)
  padding = np.arange(ids.shape[0]) >= num_ids
  return jnp.where(padding, task.vocabulary.pad, ids), num_ids


def _tokens(digits: Array, count: Array | int, task: Task) -> Array:
  """[..., D] ids of digits; for words, [..., 1] of the first `count`."""
  zero = task.vocabulary.ids['0']  # ids of integers are consecutive
  if task.tokens == 'characters':
    return zero + digits
  value = jnp.zeros(digits.shape[:-1], jnp.int32)
  for place in range(digits.shape[-1]):
    value = jnp.where(place < count, value * 10 + digits[..., place], value)
  return zero + value[..., None]


def draw(key: Array, task: Task) -> Program:
  """Draws a program for any difficulty; consumes `key`."""
  n, q = task.max_nesting, _num_others(task)
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
  """Converts bits to integers 0 .. limit - 1, uniform to within 2^-28."""
  return (bits % jnp.uint32(limit)).astype(jnp.int32)


def _digits(bits: Array) -> Array:
  """Converts bits [..., L] to digits; the highest, first, is never 0."""
  first = np.arange(bits.shape[-1]) == 0
  return jnp.where(first, 1 + _below(9, bits), _below(10, bits))


def run(program: Program, task: Task, difficulty: Difficulty) -> Array:
  """The value of a program: [n] limbs."""
  integers = arithmetic.from_digits(program.integers, difficulty.length)
  others = integers[:-1].reshape(task.max_nesting, _num_others(task), -1)
  value = arithmetic.widen(integers[-1], arithmetic.num_limbs(task.largest))
  for index in range(task.max_nesting):
    terms = [
      _terms(operation, index, value, others[index], program)
      for operation in task.operations
    ]
    factor, count, other = (
      jax.lax.select_n(program.operations[index], *cases)
      for cases in zip(*terms, strict=True)
    )
    outer = arithmetic.multiply_add(value, factor, count, other)
    value = jnp.where(index < difficulty.nesting, outer, value)
  return value


def _terms(
  operation: str, index: int, nested: Array, others: Array, program: Program
) -> tuple[Array, Array, Array]:
  """The factor [m], count () and other [m] of an operation.

  Its value is nested [n] * factor + count * other, for others [Q, m].
  """
  position, first = program.positions[index], others[0]
  if operation == 'multiply':
    return first, jnp.int32(0), first
  if operation == 'if':
    holds = _holds(nested, others, position, program.signs[index])
    factor = jnp.where(position == jnp.where(holds, 0, 3), 1, 0)
    count, other = 1 - factor, jnp.where(holds, first, others[-1])
  else:  # A sum of both operands, with a coefficient for the second.
    b = {'add': 1, 'subtract': -1, 'for': program.repeats[index]}[operation]
    factor = jnp.where(position == 0, 1, b)
    count, other = jnp.where(position == 0, b, 1), first
  factor = arithmetic.widen(jnp.int32(factor)[None], first.shape[0])
  return factor, jnp.int32(count), other


def _holds(nested: Array, others: Array, position: Array, sign: Array) -> Array:
  """The value of the comparison in A if B < C else D: () bool."""
  a_or_b, b_or_c, c_or_d = arithmetic.widen(others, nested.shape[0])
  left = jax.lax.select_n(position, a_or_b, nested, b_or_c, b_or_c)
  right = jax.lax.select_n(position, b_or_c, b_or_c, nested, c_or_d)
  return arithmetic.less(
    jnp.where(sign == 0, left, right), jnp.where(sign == 0, right, left)
  )


def write(
  program: Program, task: Task, difficulty: Difficulty
) -> tuple[Array, Array]:
  """The padded ids [task.input_steps] of a program, and their number.

  The text has 2 N + 1 parts: one before and one after the nested operand of
  every operation, and the innermost operand. A table has all possible parts, so
  each step of the text looks up its part and its place in it.
  """
  n, slots = task.max_nesting, task.integer_tokens
  # The values of the codes of `programs`, for each operation and for the
  # innermost operand, which has no sign, digit or second operand.
  signs = jnp.array([task.vocabulary.ids[sign] for sign in '<>'])
  repeats = task.vocabulary.ids['0'] + program.repeats
  choices = jnp.stack([signs[program.signs], repeats], axis=1)
  integers = _tokens(program.integers, difficulty.length, task)
  integers = jnp.pad(integers, ((0, _num_others(task) - 1), (0, 0)))
  drawn = jnp.concatenate(
    [jnp.pad(choices, ((0, 1), (0, 0))), integers.reshape(n + 1, -1)], axis=1
  )  # [N + 1, codes]

  table, sizes = map(jnp.array, _parts(task))
  variants = np.cumsum([0, *_num_positions(task)])
  num_before = int(variants[-1]) * n
  before = jnp.array(variants)[program.operations] + program.positions
  before = before * n + jnp.maximum(difficulty.nesting - 1 - np.arange(n), 0)
  parts = [(before[index], index) for index in reversed(range(n))]
  parts += [(2 * num_before, n)]
  parts += [(num_before + before[index], index) for index in range(n)]

  length = jnp.minimum(difficulty.length, slots) - 1
  steps = np.arange(task.input_steps)
  places = first_codes = jnp.zeros_like(steps)
  end = jnp.int32(0)
  for text, index in parts:
    row = text * slots + length
    here = steps >= end
    places = jnp.where(here, row * table.shape[1] + steps - end, places)
    first_codes = jnp.where(here, index * drawn.shape[1], first_codes)
    used = (index == n) | (index < difficulty.nesting)
    end += jnp.where(used, sizes[row], 0)
  ids = table.reshape(-1)[places]
  ids = jnp.where(ids < 0, drawn.reshape(-1)[first_codes - 1 - ids], ids)
  return jnp.where(steps < end, ids, task.vocabulary.pad), end


@functools.cache
def _parts(task: Task) -> tuple[np.ndarray, np.ndarray]:
  """The codes [rows, steps] of all possible parts of programs, and their sizes.

  A row is a text and the length of an integer, for words only 1. Texts are
  those before and those after the nested operand, for every operation, operand
  and depth; the last is the innermost operand.
  """
  slots = task.integer_tokens
  around = [
    programs.around(operation, task.grammar, depth, position)
    for operation in task.operations
    for position in range(programs.positions(operation, task.grammar))
    for depth in range(task.max_nesting)
  ]
  before, after = zip(*around, strict=True)
  parts = [
    programs.encode(text, task.vocabulary, length, slots)
    for text in (*before, *after, 'A')
    for length in range(1, slots + 1)
  ]
  sizes = np.array([len(part) for part in parts], np.int32)
  codes = np.zeros((len(parts), sizes.max()), np.int32)
  for row, part in zip(codes, parts, strict=True):
    row[: len(part)] = part
  return codes, sizes


def _num_positions(task: Task) -> list[int]:
  """For each operation, the number of operands that may be nested."""
  return [programs.positions(name, task.grammar) for name in task.operations]


def _num_others(task: Task) -> int:
  """Q: the most operands of an operation besides the nested one."""
  return max(programs.NUM_OPERANDS[name] for name in task.operations) - 1
