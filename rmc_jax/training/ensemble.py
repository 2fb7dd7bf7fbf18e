"""Ensembles: independent members trained by one program.

Members share the shapes and the loss, and may differ in anything that the state
holds, such as seed and data. Each member's update is `update.make_step` under
`jax.vmap`, or on a CPU one after another. Members are sharded over the devices
and do not communicate, so one with a non-finite update does not affect the
others.

The state of an ensemble is a `TrainState` whose `carry` is the members' states,
leaves [M, ...] for M members.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from rmc_jax.metrics import SumsAndCounts
from rmc_jax.training import parallel
from rmc_jax.training import update as update_lib
from rmc_jax.training.state import TrainState
from rmc_jax.types import ArrayTree


def create_ensemble(members: TrainState) -> TrainState:
  """Returns the state of an ensemble.

  The members' states have leaves [M, ...], usually of
  `jax.vmap(init_member)(seeds)`.
  """
  return TrainState(
    params=(),
    network_state=(),
    opt_state=(),
    step=jnp.zeros((), jnp.int32),
    key=members.key[0],  # Unused: every member has its own.
    carry=members,
  )


def make_ensemble_update(
  loss_fn: update_lib.LossFn,
  optimizer: optax.GradientTransformation,
  *,
  num_members: int,
  batch_size: int,
  make_batch: update_lib.MakeBatch | None = None,
  reduction: str = 'mean',
  after_update: update_lib.AfterUpdate | None = None,
  updates_per_call: int = 1,
  at_once: int | None = None,
  devices: parallel.Devices = None,
) -> Callable[..., tuple[TrainState, SumsAndCounts]]:
  """Makes the function that updates all members once (or several times).

  The arguments are those of `make_update`, for one member, except:

  Args:
    num_members: M; must divide over the devices.
    batch_size: examples in one update of one member. Batches from the host have
      leaves [M, batch_size, ...] before `parallel.split_batch`.
    at_once: see `map_members`.

  Returns:
    `update(state, batch=None) -> (state, metrics)` with metrics (sums [M],
    counts [M]). A member trains as it would alone on one device, up to
    rounding.

  Raises:
    ConfigurationError: M does not divide over the devices.
  """
  parallel.per_device_batch_size(num_members, devices)
  step = map_members(
    update_lib.make_step(
      loss_fn,
      optimizer,
      batch_size=batch_size,
      make_batch=make_batch,
      reduction=reduction,
      after_update=after_update,
      updates_per_call=updates_per_call,
    ),
    at_once,
  )

  def update_members(state, batch):
    members, metrics = step(state.carry, batch)
    metrics = jax.lax.all_gather(metrics, parallel.AXIS, tiled=True)  # [M]
    return state._replace(
      step=state.step + updates_per_call, carry=members
    ), metrics

  return parallel.parallel_update(update_members, devices)


def map_members(
  function: Callable[..., ArrayTree], at_once: int | None = None
) -> Callable[..., ArrayTree]:
  """Maps a function of one member to one of the members of a device.

  Args:
    function: takes trees of arrays of one member, and returns another.
    at_once: members computed by one `jax.vmap`. None for all, and on a CPU for
      one: the arrays of a member fit into a cache, those of all do not, which
      makes small models twice as fast.
  """
  if at_once is None and jax.default_backend() != 'cpu':
    return jax.vmap(function)

  def mapped(*trees):
    return jax.lax.map(lambda each: function(*each), trees, batch_size=at_once)

  return mapped


def get_member(state: TrainState, index: int) -> TrainState:
  """Returns the state of one member, on the host; a collective."""
  members = parallel.gather_carry(state).carry
  return jax.tree.map(lambda leaf: leaf[index], members)
