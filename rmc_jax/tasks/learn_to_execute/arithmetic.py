"""Exact integers of any width in 32-bit arithmetic, four digits per limb.

An integer is an array [..., n] of limbs 0 .. 9999, lowest first. A negative
integer is stored as its value plus 10000^n, as in two's complement, so the last
digits are always those of its non-negative remainder.

Letters: n limbs of a value, m limbs of an operand, D digits.
"""

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.types import Array

LIMB_DIGITS = 4
LIMB = 10**LIMB_DIGITS
# The most limbs of a factor for which the sum of products of two limbs in
# `multiply_add` fits into 32 bits.
MAX_FACTOR_LIMBS = 21


def num_limbs(largest: int) -> int:
  """The fewest limbs that represent -largest .. largest."""
  limbs = 1
  while 2 * largest >= LIMB**limbs:
    limbs += 1
  return limbs


def from_digits(digits: Array, length: Array | int) -> Array:
  """The integers [..., m] of the first `length` digits of [..., D].

  Digits are highest first, and m = ceil(D / 4).
  """
  max_digits = digits.shape[-1]
  limbs = -(-max_digits // LIMB_DIGITS)
  place = length - 1 - np.arange(max_digits)[:, None]  # [D, 1]
  place = place - LIMB_DIGITS * np.arange(limbs)[None, :]  # [D, m]
  weights = sum(
    jnp.where(place == power, 10**power, 0) for power in range(LIMB_DIGITS)
  )  # [D, m]
  return digits @ weights


def widen(value: Array, limbs: int) -> Array:
  """Pads a non-negative value [..., m] to [..., limbs]."""
  padding = [(0, 0)] * (value.ndim - 1) + [(0, limbs - value.shape[-1])]
  return jnp.pad(value, padding)


def multiply_add(
  value: Array, factor: Array, count: Array, other: Array
) -> Array:
  """value * factor + count * other, exact if n limbs represent the result.

  Args:
    value: [n] limbs.
    factor: [m] limbs of an integer >= 0; or an integer in -9 .. 9 and zeros.
    count: () integer in -9 .. 9.
    other: [m] limbs of an integer >= 0.
  """
  n, m = value.shape[0], other.shape[0]
  limbs, carry = [], 0
  # Scalar limbs: XLA compiles them faster, and to faster code, than sums of
  # shifted arrays.
  for place in range(n):
    total = carry
    for index in range(min(m, place + 1)):
      total += factor[index] * value[place - index]
    if place < m:
      total += count * other[place]
    # Division rounds towards 0, so the dividend must not be negative: it is the
    # sum of two terms above -9 * 10000 and the carry.
    total += 20 * LIMB
    quotient = jax.lax.div(total, jnp.int32(LIMB))
    limbs.append(total - LIMB * quotient)
    carry = quotient - 20
  return jnp.stack(limbs)  # the last carry belongs to the sign


def less(a: Array, b: Array) -> Array:
  """Whether a < b, for two values [n]: () bool."""
  result = jnp.array(False)
  for limb_a, limb_b in zip(_signed(a), _signed(b), strict=True):
    result = (limb_a < limb_b) | ((limb_a == limb_b) & result)
  return result


def _signed(value: Array) -> list[Array]:
  """The limbs of an integer, of which the top one is negative if it is."""
  *limbs, top = value
  return [*limbs, jnp.where(top >= LIMB // 2, top - LIMB, top)]


def last_digits(
  value: Array, num_digits: Array | int, max_digits: int
) -> tuple[Array, Array]:
  """The digits of value mod 10^num_digits, without leading zeros.

  Args:
    value: [n] limbs.
    num_digits: () integer in 1 .. D.
    max_digits: D, at most 4 n.

  Returns:
    Digits [D], highest first and padded with zeros; their number, at least 1.
  """
  powers = 10 ** np.arange(LIMB_DIGITS)
  digits = (value[:, None] // powers[None, :] % 10).reshape(-1)[:max_digits]
  places = np.arange(max_digits)
  digits = jnp.where(places < num_digits, digits, 0)  # [D], the lowest first
  count = jnp.maximum(1, jnp.max(jnp.where(digits > 0, places + 1, 0)))
  place = count - 1 - places
  written = digits[jnp.maximum(place, 0)]
  return jnp.where(place >= 0, written, 0), count
