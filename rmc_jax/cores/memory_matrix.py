"""Checks and conversions of sizes and states that the cores share."""

import operator

import jax
import jax.numpy as jnp

from rmc_jax.types import Array
from rmc_jax.types import ArrayTree


def initial_memory(
  mem_slots: int, slot_width: int, batch_size: int | None
) -> Array:
  """Returns the identity, padded or cut to [B, N, D], or [N, D] for None.

  Slots start with different values so that they can learn different roles.
  """
  memory = jnp.eye(mem_slots, slot_width)
  if batch_size is None:
    return memory
  return jnp.broadcast_to(memory, (batch_size, *memory.shape))


def memory_batch_shape(
  name: str, memory: Array, mem_slots: int, slot_width: int
) -> tuple[int, ...]:
  """Returns (B,) or (); raises ValueError for other than [(B,) N, D]."""
  if memory.ndim not in (2, 3) or memory.shape[-2:] != (mem_slots, slot_width):
    raise ValueError(
      f'{name}: the memory has shape {memory.shape}, expected '
      f'[batch, {mem_slots}, {slot_width}] or, unbatched, '
      f'[{mem_slots}, {slot_width}]; initial_state() makes one.'
    )
  return memory.shape[:-2]


def join_rows(rows: Array) -> Array:
  """Concatenates I rows: [..., I, D] to [..., 1, I * D]."""
  width = rows.shape[-2] * rows.shape[-1]
  return rows.reshape(*rows.shape[:-2], 1, width)


def to_float32(state: ArrayTree) -> ArrayTree:
  """Casts each array to float32, unless it is wider."""
  return jax.tree.map(
    lambda s: s.astype(jnp.promote_types(s.dtype, jnp.float32)), state
  )


def positive_int(name: str, value: int, least: int = 1) -> int:
  """Returns `value` if it is an integer >= `least`, and raises otherwise."""
  try:
    number = operator.index(value)
  except TypeError:
    raise TypeError(f'{name} must be an integer. Got: {value!r}.') from None
  if number < least:
    raise ValueError(f'{name} must be >= {least}. Got: {value}.')
  return number
