"""Initial states and conversions that the cores share."""

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
  return add_batch_axis(jnp.eye(mem_slots, slot_width), batch_size)


def add_batch_axis(state: ArrayTree, batch_size: int | None) -> ArrayTree:
  """Repeats each array along a new first axis, unless that is None."""
  if batch_size is None:
    return state
  return jax.tree.map(
    lambda s: jnp.broadcast_to(s, (batch_size, *s.shape)), state
  )


def flatten_rows(rows: Array) -> Array:
  """Concatenates rows: [..., I, D] to [..., I * D]."""
  return rows.reshape(*rows.shape[:-2], rows.shape[-2] * rows.shape[-1])


def to_float32(state: ArrayTree) -> ArrayTree:
  """Casts each array to float32, unless it is wider."""
  return jax.tree.map(
    lambda s: s.astype(jnp.promote_types(s.dtype, jnp.float32)), state
  )


def cast_like(arrays: ArrayTree, like: ArrayTree) -> ArrayTree:
  """Casts each array to the dtype of its counterpart."""
  return jax.tree.map(lambda a, s: a.astype(s.dtype), arrays, like)
