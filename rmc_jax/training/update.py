"""One update: gradients are summed over devices and applied.

With l_d the summed loss and w_d the weight on device d, the optimiser sees

  g = (sum_d grad l_d) / (sum_d w_d)    reduction='mean'
  g =  sum_d grad l_d                   reduction='sum'

on every device. The mean is over the global batch, even if the w_d differ.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.metrics import SumsAndCounts
from rmc_jax.training import parallel
from rmc_jax.training.state import TrainState
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree


class LossAux(NamedTuple):
  """The second result of a loss function."""

  weight: Array  # [], the number of examples or tokens in the summed loss.
  metrics: SumsAndCounts  # Over the same rows.
  network_state: ArrayTree  # After the forward pass.
  carry: ArrayTree = ()  # The rows after the forward pass, see `TrainState`.


# (params, network_state, carry, key, batch) -> (summed loss, LossAux)
LossFn = Callable[
  [ArrayTree, ArrayTree, ArrayTree, Array, ArrayTree], tuple[Array, LossAux]
]
# (params, network_state, carry, key, index) -> (batch, carry)
MakeBatch = Callable[
  [ArrayTree, ArrayTree, ArrayTree, Array, Array], tuple[ArrayTree, ArrayTree]
]
# (network_state, metrics) -> network_state
AfterUpdate = Callable[[ArrayTree, SumsAndCounts], ArrayTree]


def make_update(
  loss_fn: LossFn,
  optimizer: optax.GradientTransformation,
  *,
  global_batch_size: int,
  make_batch: MakeBatch | None = None,
  reduction: str = 'mean',
  after_update: AfterUpdate | None = None,
  updates_per_call: int = 1,
  devices: parallel.Devices = None,
) -> Callable[..., tuple[TrainState, SumsAndCounts]]:
  """Makes the function that the training loop calls.

  With `key = fold_in(state.key, state.step)` and B the global batch size,
  example i of the update may use `fold_in(key, i)`, i < B. The loss on device d
  gets `fold_in(key, B + d)`, or `fold_in(key, d)` without `make_batch`.

  Args:
    loss_fn: see `LossFn`. Gets this device's rows of carry and batch, over
      which it sums the loss. The key is for dropout and the like.
    optimizer: applied to g, including any clipping.
    global_batch_size: B, examples in one update over all devices of the job.
    make_batch: makes the batch on the device: a rollout of environments, or
      `per_example(sample)`. `index` [B / devices] holds the global indices of
      this device's examples. None: batches come from the host, through
      `parallel.split_batch`.
    reduction: 'mean' or 'sum', see the top of the file.
    after_update: changes the network state after the sum over devices; a
      curriculum, for example. `metrics` are those of one update.
    updates_per_call: saves dispatch time; more than one needs `make_batch`.
    devices: see `parallel`.

  Returns:
    `update(state, batch=None) -> (state, metrics)`.

    `state` is donated. Its step advances by `updates_per_call`, always. An
    update whose loss, weight, gradient or parameter change is not finite, or
    with a NaN in the network state of `loss_fn`, is not applied: params,
    network_state and opt_state keep their bits. `carry` advances even then,
    except for rows that are not finite.

    `metrics` maps names to (sum, count), replicated [] arrays over the global
    batch and all updates of the call: those of `loss_fn`, and 'loss' (loss,
    weight), 'gradient_norm' (global norm of g before any clipping, updates) and
    'nonfinite' (updates not applied, updates).

  Raises:
    ConfigurationError: the global batch does not divide over the devices.
    ValueError: an unknown reduction, updates_per_call below 1, or above 1
      without make_batch.
  """
  rows = parallel.per_device_batch_size(global_batch_size, devices)
  step = make_step(
    loss_fn,
    optimizer,
    batch_size=rows,
    make_batch=make_batch,
    reduction=reduction,
    after_update=after_update,
    updates_per_call=updates_per_call,
    axis_name=parallel.AXIS,
  )
  return parallel.parallel_update(step, devices)


def make_step(
  loss_fn: LossFn,
  optimizer: optax.GradientTransformation,
  *,
  batch_size: int,
  make_batch: MakeBatch | None = None,
  reduction: str = 'mean',
  after_update: AfterUpdate | None = None,
  updates_per_call: int = 1,
  axis_name: str | None = None,
) -> Callable[..., tuple[TrainState, SumsAndCounts]]:
  """Makes (state, batch) -> (state, metrics) for one device.

  The arguments are those of `make_update`, except:

  Args:
    batch_size: number of rows of carry and batch on each device.
    axis_name: the mapped axis of the devices. None: this is the only device,
      and the function may be vmapped.
  """
  one_of('reduction', reduction, ('mean', 'sum'))
  if make_batch is None and updates_per_call > 1:
    raise ValueError(
      'updates_per_call must be 1 where batches come from the host (without '
      f'make_batch). Got: {updates_per_call}.'
    )
  gradient_fn = jax.value_and_grad(loss_fn, has_aux=True)
  rule = (
    f'each device needs {batch_size} rows, the global batch size / devices.'
  )

  def step(state, batch=None):
    device, devices = 0, 1
    if axis_name is not None:
      device = jax.lax.axis_index(axis_name)
      devices = jax.lax.axis_size(axis_name)
    parallel.check_leading_axis('carry', state.carry, batch_size, rule)
    key = jax.random.fold_in(state.key, state.step)
    carry, loss_index = state.carry, device
    if make_batch is not None:
      if batch is not None:
        raise ValueError('batch must be None: make_batch makes it.')
      index = device * batch_size + jnp.arange(batch_size)
      batch, carry = make_batch(
        state.params, state.network_state, carry, key, index
      )
      loss_index += devices * batch_size
    elif batch is None:
      raise ValueError('This update needs a batch from the host. Got: None.')
    parallel.check_leading_axis('batch', batch, batch_size, rule)
    (loss, aux), gradients = gradient_fn(
      state.params,
      state.network_state,
      carry,
      jax.random.fold_in(key, loss_index),
      batch,
    )
    loss, weight, gradients, metrics = parallel.psum(
      (loss, aux.weight, gradients, dict(aux.metrics)), axis_name
    )
    if reduction == 'mean':
      gradients = jax.tree.map(lambda g: g / weight, gradients)
    gradient_norm = optax.tree.norm(gradients)
    updates, opt_state = optimizer.update(
      gradients, state.opt_state, state.params
    )
    network_state = _average(aux.network_state, axis_name)
    # The optimiser may make 0 / 0 of a finite gradient.
    finite = _all_finite((loss / weight, gradient_norm, updates))
    finite &= ~_any_nan(network_state)
    one = jnp.ones((), jnp.int32)
    own = {
      'loss': (loss, weight),
      'gradient_norm': (gradient_norm, one),
      'nonfinite': (one - finite, one),
    }
    if taken := sorted(own.keys() & metrics.keys()):
      raise ValueError(
        f'The update itself reports {taken}; rename these metrics of loss_fn.'
      )
    metrics |= own
    if after_update is not None:
      network_state = after_update(network_state, metrics)
    applied = state._replace(
      params=optax.apply_updates(state.params, updates),
      network_state=network_state,
      opt_state=opt_state,
      carry=(),
    )
    next_state = jax.tree.map(
      lambda new, old: jax.lax.select(finite, new, old),
      applied,
      state._replace(carry=()),
    )
    return next_state._replace(
      step=state.step + 1, carry=_advance(finite, state.carry, aux.carry)
    ), metrics

  return _repeat(step, updates_per_call)


def per_example(sample: Callable[[Array, ArrayTree], ArrayTree]) -> MakeBatch:
  """Makes a `make_batch` of a function (key, network_state) -> one example.

  Example i gets `fold_in(key, i)`: the same examples on any number of devices.
  """

  def make_batch(params, network_state, carry, key, index):
    del params
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)
    return jax.vmap(sample, in_axes=(0, None))(keys, network_state), carry

  return make_batch


def _repeat(step: Callable, updates_per_call: int) -> Callable:
  """Returns (state, batch) -> (state, summed metrics) of several updates."""
  if positive_int('updates_per_call', updates_per_call) == 1:
    return step

  def steps(state, batch=None):
    state, metrics = jax.lax.scan(
      lambda state, _: step(state, batch), state, length=updates_per_call
    )
    return state, jax.tree.map(lambda values: values.sum(0), metrics)

  return steps


def _all_finite(tree: ArrayTree) -> Array:
  """Returns a [] bool."""
  leaves = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]
  return jnp.stack(leaves).all()


def _any_nan(tree: ArrayTree) -> Array:
  """Returns a [] bool; infinity may be the initial value of a minimum."""
  leaves = [
    jnp.isnan(leaf).any()
    for leaf in jax.tree.leaves(tree)
    if jnp.issubdtype(leaf.dtype, jnp.inexact)
  ]
  return jnp.array(leaves).any()


def _average(network_state: ArrayTree, axis_name: str | None) -> ArrayTree:
  """Averages over devices; integers are equal on all of them."""
  if axis_name is None:
    return network_state
  return jax.tree.map(
    lambda leaf: (
      jax.lax.pmean(leaf, axis_name)
      if jnp.issubdtype(leaf.dtype, jnp.inexact)
      else jax.lax.pmax(leaf, axis_name)
    ),
    network_state,
  )


def _advance(finite: Array, old: ArrayTree, new: ArrayTree) -> ArrayTree:
  """Returns the new carry, with the old rows where new ones are not finite.

  A NaN in a recurrent state would make every later update non-finite.
  """
  finite_rows = [
    jnp.isfinite(leaf).reshape(len(leaf), -1).all(-1)  # [rows]
    for leaf in jax.tree.leaves(new)
    if jnp.issubdtype(leaf.dtype, jnp.inexact)
  ]
  if not finite_rows:
    return new
  good = finite | jnp.stack(finite_rows).all(0)  # [rows]
  return jax.tree.map(
    lambda n, o: jnp.where(good.reshape(-1, *[1] * (n.ndim - 1)), n, o),
    new,
    old,
  )
