"""The training state."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rmc_jax.errors import ConfigurationError
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree


class TrainState(NamedTuple):
  """Everything that a run needs to resume, without a replica axis.

  All fields but `carry` are replicated: every device holds the same copy.

  Attributes:
    params: the parameters, as `init` of the Haiku transform returned them.
    network_state: Haiku state (moving averages, a curriculum); {} if none.
    opt_state: the optimiser's state, including the counts of its schedules.
    step: [] int32, the number of updates so far, including non-finite ones.
      Data and randomness are functions of (key, step).
    key: the base key. It is never split or advanced: consumers fold in the step
      and then an index.
    carry: state of the examples of the batch that passes from one update to the
      next, such as the recurrent state in truncated back-propagation or the
      states of environments; () if none. Its leaves are [B, ...] on the host
      and in checkpoints, B the global batch size, and [local devices,
      B / devices, ...] on the devices, each device holding its own rows.
  """

  params: ArrayTree
  network_state: ArrayTree
  opt_state: ArrayTree
  step: Array
  key: Array
  carry: ArrayTree = ()


def create_state(
  params: ArrayTree,
  network_state: ArrayTree,
  optimizer: optax.GradientTransformation,
  key: Array,
  carry: ArrayTree = (),
) -> TrainState:
  """Returns the state before the first update; fields as in `TrainState`.

  The key may be typed (`jax.random.key`) or a uint32 [2]
  (`jax.random.PRNGKey`).

  Raises:
    ValueError: `key` is not a single key.
  """
  if not _is_one_key(key):
    raise ValueError(
      f'key must be a single key from jax.random.key(seed) or '
      f'jax.random.PRNGKey(seed). Got: {key!r}.'
    )
  return TrainState(
    params=params,
    network_state=network_state,
    opt_state=optimizer.init(params),
    step=jnp.zeros((), jnp.int32),
    key=key,
    carry=carry,
  )


def skip_updates(state: TrainState, count: int) -> TrainState:
  """Returns the state, on the host, with later steps and so with other data.

  In an ensemble, whose `carry` is the members' states, their steps too.
  """
  carry = state.carry
  if isinstance(carry, TrainState):
    carry = skip_updates(carry, count)
  return state._replace(step=state.step + np.int32(count), carry=carry)


def check_step(state: TrainState, step: int, updates_per_call: int) -> None:
  """Raises ConfigurationError if the state is not that of `step`."""
  if (found := int(state.step)) != step:
    raise ConfigurationError(
      f'The update has advanced the state to step {found}, not {step}. Make it '
      f'with the updates_per_call of the RunConfig, {updates_per_call}.'
    )


def dealias(tree: ArrayTree) -> ArrayTree:
  """Copies every leaf into a buffer of its own.

  Two leaves may share a buffer, such as a tied embedding. Donating such a tree
  raises an error or crashes, depending on the version of JAX, and donating a
  buffer that the caller still holds deletes the caller's array.
  """
  return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), tree)


def count_parameters(params: ArrayTree) -> int:
  """Returns the number of scalars in the tree; needs shapes only."""
  return sum(leaf.size for leaf in jax.tree.leaves(params))


def _is_one_key(key: Array) -> bool:
  if not isinstance(key, jax.Array):
    return False
  if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
    return key.ndim == 0
  return key.dtype == jnp.uint32 and key.ndim == 1
