"""Tests rmc_jax/tasks/learn_to_execute/arithmetic.py."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.tasks.learn_to_execute import arithmetic

LIMBS = 5  # of values below; operands have 2
LARGEST = (10_000**LIMBS - 1) // 2
OPERANDS = (0, 1, 7, 9_999, 10_000, 87_654_321, 99_999_999)
# Limits of limbs, and signs; results below stay within LARGEST.
VALUES = (0, 1, 9_999, 10_000, 10**8 - 1, 10**8, 100_000_010_000, 123_456_789)
VALUES += tuple(-value for value in VALUES[1:])


def limbs(values, n=LIMBS):
  """Python integers as [values, n] limbs."""
  rows = [
    [value % 10_000**n // 10_000**i % 10_000 for i in range(n)]
    for value in values
  ]
  return jnp.array(rows, jnp.int32)


def integers(rows):
  n = rows.shape[1]
  values = [
    sum(limb * 10_000**i for i, limb in enumerate(row))
    for row in np.asarray(rows).tolist()
  ]
  return [v - 10_000**n if 2 * v >= 10_000**n else v for v in values]


def test_limbs_represent_the_largest_and_its_negative():
  for n in (1, 2, 5):
    edge = 10_000**n // 2 - 1
    assert arithmetic.num_limbs(edge) == n
    assert arithmetic.num_limbs(edge + 1) == n + 1
    assert integers(limbs([edge, -edge], n)) == [edge, -edge]


@pytest.mark.parametrize('digits', [1, 4, 5, 11])
def test_from_digits(digits):
  rng = random.Random(digits)
  rows = [[rng.randrange(10) for _ in range(digits)] for _ in range(7)]
  rows += [[9] * digits, [1] + [0] * (digits - 1)]
  size = -(-digits // 4)
  convert = jax.jit(arithmetic.from_digits)
  for length in range(1, digits + 1):
    result = convert(jnp.array(rows), length)
    assert result.shape == (len(rows), size)
    expected = [int(''.join(map(str, row[:length]))) for row in rows]
    np.testing.assert_array_equal(result, limbs(expected, size))


@pytest.mark.parametrize('small', [True, False])
def test_multiply_add_is_exact(small):
  # A factor is one signed integer or several limbs.
  factors = range(-9, 10) if small else OPERANDS
  cases = [
    (value, factor, count, other)
    for value in VALUES
    for factor in factors
    for count in (-9, -1, 0, 1, 9)
    for other in OPERANDS
  ]
  value, factor, count, other = zip(*cases, strict=True)
  if small:
    factors = jnp.array([[f, 0] for f in factor])
  else:
    factors = limbs(factor, 2)
  result = jax.jit(jax.vmap(arithmetic.multiply_add))(
    limbs(value), factors, jnp.array(count), limbs(other, 2)
  )
  assert result.min() >= 0
  assert result.max() < 10_000
  expected = [v * f + c * o for v, f, c, o in cases]
  assert max(map(abs, expected)) <= LARGEST
  assert integers(result) == expected


def test_the_longest_factor_does_not_overflow():
  m = arithmetic.MAX_FACTOR_LIMBS
  nines = 10_000**m - 1
  result = arithmetic.multiply_add(
    limbs([nines], 2 * m + 1)[0],
    limbs([nines], m)[0],
    jnp.int32(9),
    limbs([nines], m)[0],
  )
  assert integers(result[None]) == [nines * nines + 9 * nines]
  # The constant is the largest: 22 products of 9999 squared exceed 2^31.
  assert (m + 1) * 9_999**2 > 2**31


def test_less_is_signed_and_exact():
  values = (*VALUES, LARGEST, -LARGEST, LARGEST - 1, 10**8 + 1)
  a, b = zip(*[(x, y) for x in values for y in values], strict=True)
  result = jax.jit(jax.vmap(arithmetic.less))(limbs(a), limbs(b))
  expected = [x < y for x, y in zip(a, b, strict=True)]
  np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize('max_digits', [2, 6, 4 * LIMBS])
def test_last_digits_are_those_of_the_remainder(max_digits):
  values = (*VALUES, LARGEST, 10, 500, 100_000)
  write = jax.jit(
    jax.vmap(arithmetic.last_digits, in_axes=(0, None, None)),
    static_argnums=2,
  )
  for num_digits in range(1, max_digits + 1):
    digits, counts = write(limbs(values), num_digits, max_digits)
    assert digits.shape == (len(values), max_digits)
    for row, count, value in zip(
      digits.tolist(), counts.tolist(), values, strict=True
    ):
      expected = str(value % 10**num_digits)
      assert ''.join(map(str, row[:count])) == expected
      assert row[count:] == [0] * (max_digits - count)
