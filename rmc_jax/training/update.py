"""One update: gradients of a summed loss, added over devices, then applied.

With l_d the summed loss and w_d the weight on device d, and g the gradient,

  g = (sum_d grad l_d) / (sum_d w_d)

which is the gradient of the mean over the global batch however unequal the w_d
are; the optimiser sees this g, the same on every device.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rmc_jax.errors import ConfigurationError
from rmc_jax.metrics import SumsAndCounts
from rmc_jax.training import parallel
from rmc_jax.training.state import TrainState
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

RESERVED_METRICS = ('loss', 'gradient_norm', 'nonfinite')


class LossAux(NamedTuple):
  """What a loss function returns beside the summed loss.

  weight: [] what the loss was summed over: examples, tokens.
  metrics: name -> (sum, count), summed over the same share of the batch.
  network_state: the Haiku state after the forward pass.
  """

  weight: Array
  metrics: SumsAndCounts
  network_state: ArrayTree


# (params, network_state, key, batch) -> (summed loss, LossAux)
LossFn = Callable[
  [ArrayTree, ArrayTree, Array, ArrayTree], tuple[Array, LossAux]
]
# (key, network_state) -> one example, no batch axis
SampleFn = Callable[[Array, ArrayTree], ArrayTree]


def make_update(
  loss_fn: LossFn,
  optimizer: optax.GradientTransformation,
  *,
  global_batch_size: int,
  sample: SampleFn | None = None,
  data_key: Array | None = None,
  updates_per_call: int = 1,
  carry: bool = False,
  devices: parallel.Devices = None,
) -> Callable[..., tuple[TrainState, SumsAndCounts]]:
  """Makes the function the training loop calls.

  Args:
    loss_fn: see the types above. Its key is the base key with the step and then
      the device's index in the job folded in, for dropout and the like.
    optimizer: applied to g, clipping included if it clips.
    global_batch_size: examples in one update, over all devices of the job.
    sample: makes one example on the device, for tasks that need no files; sees
      the network state, where a curriculum keeps its level.
      Example i of update s has the key
      `fold_in(fold_in(data_key, s), i)`, i counting through the global batch:
      the same examples come out on 1, 2 or 4 devices. None: batches come from
      the host, [devices, B / devices, ...] as `parallel.split_batch` makes
      them.
    data_key: the key of the data, with `sample` only. Must not be the base key
      of the state: dropout would share its keys with the examples.
    updates_per_call: updates made inside one call, with `sample` only. Spares
      the dispatch of small models.
    carry: whether the network state belongs to the examples, as the state of a
      core that is carried from one update to the next does: its arrays are
      [global_batch_size, ...], and `loss_fn` sees and returns the rows of its
      share. Otherwise it is one for all, and what the devices make of it is
      averaged.
    devices: devices of the job to use, None for all.

  Returns:
    `update(state, batch=None) -> (state, metrics)`.

    state is donated. Its step advances by `updates_per_call`, always. An update
    whose loss, weight, gradient or change of the params is not finite is not
    applied: params, network_state and opt_state stay as they were, bit for bit.

    metrics maps names to (sum, count), replicated 0-d arrays over the global
    batch and all updates of the call: those of `loss_fn`, and 'loss' (loss,
    weight), 'gradient_norm' (global norm of g before any clipping, updates) and
    'nonfinite' (updates not applied, updates).

  Raises:
    ValueError: a global batch that does not divide over the devices, or
      arguments that do not go together.
  """
  if updates_per_call < 1:
    raise ConfigurationError(
      f'updates_per_call must be at least 1, got {updates_per_call}.'
    )
  per_device = parallel.per_device_batch_size(global_batch_size, devices)
  step = make_step(loss_fn, optimizer, per_device if carry else None)
  if sample is None:
    if data_key is not None or updates_per_call != 1:
      raise ValueError(
        'data_key and updates_per_call are for data made on the device; '
        f'without sample, got data_key={data_key} and '
        f'updates_per_call={updates_per_call}.'
      )

    def update_from_host(state, batch):
      if batch is None:
        raise ValueError('This update needs a batch from the host; got None.')
      _check_share(batch, per_device)
      return step(state, batch)

    return parallel.parallel_update(update_from_host, devices)

  if data_key is None:
    raise ValueError('sample needs a data_key, got None.')

  def update_with_sample(state, batch):
    if batch is not None:
      raise ValueError('This update makes its own batch with sample; got one.')

    def body(state, _):
      batch = _sample_share(sample, data_key, state, per_device)
      return step(state, batch)

    state, metrics = jax.lax.scan(body, state, length=updates_per_call)
    return state, jax.tree.map(lambda values: values.sum(0), metrics)

  return parallel.parallel_update(update_with_sample, devices)


def make_step(
  loss_fn: LossFn,
  optimizer: optax.GradientTransformation,
  carried_rows: int | None = None,
) -> Callable[[TrainState, ArrayTree], tuple[TrainState, SumsAndCounts]]:
  """(state, this device's share) -> (state, metrics), for inside a mapping.

  Knows nothing of the mapping but the name of its axis, `parallel.AXIS`. Of a
  network state that is carried, each device has `carried_rows`.
  """
  gradient_fn = jax.value_and_grad(loss_fn, has_aux=True)

  def step(state, batch):
    key = jax.random.fold_in(state.key, state.step)
    key = jax.random.fold_in(key, jax.lax.axis_index(parallel.AXIS))
    network_state = state.network_state
    if carried_rows is not None:
      _check_carried(network_state, carried_rows)
      network_state = parallel.own_rows(network_state, carried_rows)
    (loss, aux), gradients = gradient_fn(
      state.params, network_state, key, batch
    )
    _check_metric_names(aux.metrics)
    loss, weight, gradients, metrics = parallel.psum(
      (loss, aux.weight, gradients, dict(aux.metrics))
    )
    gradients = jax.tree.map(lambda g: g / weight, gradients)
    gradient_norm = optax.tree.norm(gradients)
    updates, opt_state = optimizer.update(
      gradients, state.opt_state, state.params
    )
    # The optimiser may make 0 / 0 of a finite gradient.
    finite = _all_finite((loss / weight, gradient_norm, updates))
    applied = state._replace(
      params=optax.apply_updates(state.params, updates),
      network_state=(
        _average(aux.network_state)
        if carried_rows is None
        else parallel.all_rows(aux.network_state)
      ),
      opt_state=opt_state,
    )
    next_state = jax.tree.map(
      lambda new, old: jax.lax.select(finite, new, old), applied, state
    )._replace(step=state.step + 1)
    one = jnp.ones((), jnp.int32)
    return next_state, metrics | {
      'loss': (loss, weight),
      'gradient_norm': (gradient_norm, one),
      'nonfinite': (one - finite, one),
    }

  return step


def _sample_share(sample, data_key, state, per_device) -> ArrayTree:
  """This device's examples of the global batch, leaves [per_device, ...]."""
  first = jax.lax.axis_index(parallel.AXIS) * per_device
  keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(
    jax.random.fold_in(data_key, state.step), first + jnp.arange(per_device)
  )
  return jax.vmap(sample, in_axes=(0, None))(keys, state.network_state)


def _all_finite(tree: ArrayTree) -> Array:
  """[] bool."""
  leaves = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]
  return jnp.stack(leaves).all()


def _average(network_state: ArrayTree) -> ArrayTree:
  """Averages what the devices saw; whole numbers count alike on all of them."""
  return jax.tree.map(
    lambda leaf: (
      jax.lax.pmean(leaf, parallel.AXIS)
      if jnp.issubdtype(leaf.dtype, jnp.inexact)
      else jax.lax.pmax(leaf, parallel.AXIS)
    ),
    network_state,
  )


def _check_metric_names(metrics: SumsAndCounts) -> None:
  if taken := sorted(set(RESERVED_METRICS) & metrics.keys()):
    raise ValueError(
      f'The update itself reports {taken}; the metrics of loss_fn need other '
      'names.'
    )


def _check_carried(network_state: ArrayTree, rows: int) -> None:
  size = rows * jax.lax.axis_size(parallel.AXIS)
  for path, leaf in jax.tree_util.tree_leaves_with_path(network_state):
    if leaf.shape[:1] != (size,):
      raise ValueError(
        f'A network state that is carried has {size} rows, one for each '
        f'example of the global batch; {jax.tree_util.keystr(path)} has the '
        f'shape {leaf.shape}.'
      )


def _check_share(batch: ArrayTree, per_device: int) -> None:
  for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
    if leaf.shape[:1] != (per_device,):
      raise ValueError(
        f'The batch array {jax.tree_util.keystr(path)} brings '
        f'{leaf.shape[0] if leaf.ndim else "no"} examples to each device; '
        f'the global batch size asks for {per_device}.'
      )
