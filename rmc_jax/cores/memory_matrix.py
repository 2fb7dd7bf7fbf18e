"""A matrix of memory slots as a state: its sizes, start, shape and width."""

import operator

import jax
import jax.numpy as jnp

from rmc_jax.types import Array
from rmc_jax.types import ArrayTree


def initial_memory(
  mem_slots: int, slot_width: int, batch_size: int | None
) -> Array:
  """The identity, padded with zeros or cut: [B, N, D], or [N, D] for None.

  Every slot starts different, so that the slots can take different roles.
  """
  memory = jnp.eye(mem_slots, slot_width)
  if batch_size is None:
    return memory
  return jnp.broadcast_to(memory, (batch_size, *memory.shape))


def memory_batch_shape(
  name: str, memory: Array, mem_slots: int, slot_width: int
) -> tuple[int, ...]:
  """(B,) or (); raises ValueError unless `memory` is [B, N, D] or [N, D]."""
  if memory.ndim not in (2, 3) or memory.shape[-2:] != (mem_slots, slot_width):
    raise ValueError(
      f'{name}: the memory has shape {memory.shape}, expected '
      f'[batch, {mem_slots}, {slot_width}] or, unbatched, '
      f'[{mem_slots}, {slot_width}]; initial_state() makes one.'
    )
  return memory.shape[:-2]


def join_rows(rows: Array) -> Array:
  """I rows side by side as one: [..., I, D] to [..., 1, I * D]."""
  width = rows.shape[-2] * rows.shape[-1]
  return rows.reshape(*rows.shape[:-2], 1, width)


def wide(state: ArrayTree) -> ArrayTree:
  """The state in float32, or in what it is already if that is wider."""
  return jax.tree.map(
    lambda s: s.astype(jnp.promote_types(s.dtype, jnp.float32)), state
  )


def positive_int(name: str, value: int, least: int = 1) -> int:
  """`value` if it is an integer of `least` or more; else says what it is."""
  try:
    number = operator.index(value)
  except TypeError:
    raise TypeError(f'{name} must be an integer. Got: {value!r}.') from None
  if number < least:
    raise ValueError(f'{name} must be >= {least}. Got: {value}.')
  return number
