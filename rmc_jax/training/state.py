"""The training state: everything a run needs to go on, in one tree."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rmc_jax.types import Array
from rmc_jax.types import ArrayTree


class TrainState(NamedTuple):
  """One tree without a replica axis: every device holds the same copy.

  params: the weights, as `init` of the Haiku transform returned them.
  network_state: Haiku state (moving averages and the like); {} where none.
  opt_state: the optimiser's state, with the counts of its schedules.
  step: [] int32, updates made so far, those left out for being non-finite
    included. Since data and randomness are functions of (key, step), it is also
    the position in the data.
  key: the base key. Never split and never advanced: each consumer folds in the
    step and then the index of the device.
  """

  params: ArrayTree
  network_state: ArrayTree
  opt_state: ArrayTree
  step: Array
  key: Array


def create_state(
  params: ArrayTree,
  network_state: ArrayTree,
  optimizer: optax.GradientTransformation,
  key: Array,
) -> TrainState:
  """The state before the first update; `parallel.place_state` comes next.

  Args:
    params: the weights.
    network_state: Haiku state, {} for a network made by `hk.transform`.
    optimizer: whose `init` makes the optimiser's state.
    key: the base key of the run, typed (`jax.random.key`) or a uint32 [2] of
      the old kind (`jax.random.PRNGKey`). The state keeps it as it is.

  Raises:
    ValueError: `key` is not one key.
  """
  if not _is_one_key(key):
    raise ValueError(
      f'The base key must be one key, made by jax.random.key(seed) or '
      f'jax.random.PRNGKey(seed); got {key!r}.'
    )
  return TrainState(
    params=params,
    network_state=network_state,
    opt_state=optimizer.init(params),
    step=jnp.zeros((), jnp.int32),
    key=key,
  )


def dealias(tree: ArrayTree) -> ArrayTree:
  """Copies every leaf into a buffer of its own.

  An average of the weights that starts as the weights, or a tied embedding, is
  one buffer in two leaves. Donating such a tree is an error on some versions of
  JAX and kills the process on others, and donating a buffer that the caller
  still holds deletes it under the caller's feet.
  """
  return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), tree)


def count_parameters(params: ArrayTree) -> int:
  """The number of scalars in the tree; needs shapes only."""
  return sum(leaf.size for leaf in jax.tree.leaves(params))


def _is_one_key(key: Array) -> bool:
  if not isinstance(key, jax.Array):
    return False
  if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
    return key.ndim == 0
  return key.dtype == jnp.uint32 and key.ndim == 1
