"""Evaluation of a whole split: every example once, none twice, and proof of it.

The split is walked in global batches of a fixed size; the last one is filled up
with copies of the last example that weigh nothing. Sums and counts are added
over examples, devices and processes; nothing is divided here.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax import metrics as metrics_lib
from rmc_jax.metrics import SumsAndCounts
from rmc_jax.training import parallel
from rmc_jax.training.state import TrainState
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

# (params, network_state, batch) -> name -> (sums [B], counts [B])
MetricFn = Callable[
  [ArrayTree, ArrayTree, ArrayTree], dict[str, tuple[Array, Array]]
]


def make_evaluate(
  metric_fn: MetricFn,
  examples: ArrayTree,
  *,
  global_batch_size: int,
  devices: parallel.Devices = None,
) -> Callable[[TrainState], SumsAndCounts]:
  """Makes the function that evaluates a split held on the host.

  Args:
    metric_fn: returns one sum and one count for each example of the batch, so
      that the examples which fill up the last batch can be left out here and
      not by every metric. `jax.vmap(losses.softmax_cross_entropy)(logits,
      labels)` is such a pair. It gets no key: dropout is off.
    examples: leaves [examples, ...], the whole split, the same on every
      process; each process feeds its own part of every batch.
    global_batch_size: examples at a time, over all devices of the job.
    devices: devices of the job to use, None for all.

  Returns:
    `evaluate(state) -> name -> (sum, count)` in floats, for `metrics.divide`.
    The state is a placed one and is not donated. Every process must call it,
    and all get the same result.

  Raises:
    ConfigurationError: a global batch that does not divide over the devices.
    ValueError: arrays that differ in their number of examples, or none; from
      `evaluate`, a metric that is not one pair for each example.
  """
  per_device = parallel.per_device_batch_size(global_batch_size, devices)
  rows = parallel.process_rows(global_batch_size, devices)
  num_examples = _split_size(examples)

  def batch_sums(variables, share):
    params, network_state = variables
    metrics = metric_fn(params, network_state, share['examples'])
    _check_metrics(metrics, per_device)
    # Not a product: what an example that fills up gives may be nan.
    real = share['is_real']  # [B / devices]
    return real.sum(), {
      name: tuple(jnp.where(real, values, 0).sum() for values in pair)
      for name, pair in metrics.items()
    }

  total = parallel.parallel_sum(batch_sums, devices)

  def evaluate(state):
    counted, totals = 0, []
    for batch in range(_num_batches(num_examples, global_batch_size)):
      first = batch * global_batch_size
      index = np.arange(first + rows.start, first + rows.stop)
      share = {
        'examples': _take(examples, np.minimum(index, num_examples - 1)),
        'is_real': index < num_examples,
      }
      real, sums = jax.device_get(
        total(
          (state.params, state.network_state),
          parallel.split_batch(share, devices),
        )
      )
      counted += int(real)
      # Python floats: float32 sums lose examples after some millions of them.
      totals.append(jax.tree.map(float, sums))
    if counted != num_examples:
      raise RuntimeError(
        f'Evaluation counted {counted} examples of a split of {num_examples}.'
      )
    return metrics_lib.merge(*totals)

  return evaluate


def make_evaluate_generated(
  metric_fn: MetricFn,
  sample: Callable[[Array], ArrayTree],
  split_key: Array,
  *,
  num_examples: int,
  global_batch_size: int,
  devices: parallel.Devices = None,
) -> Callable[[TrainState], SumsAndCounts]:
  """As `make_evaluate`, for a split that the devices make as they go.

  Args:
    metric_fn: as for `make_evaluate`.
    sample: makes one example from a key, as for `update.make_update`.
    split_key: example i of the split has the key fold_in(split_key, i). Use
      another key than for training.
    num_examples: the size of the split.
    global_batch_size: examples at a time, over all devices of the job.
    devices: devices of the job to use, None for all.
  """

  def generated_metric_fn(params, network_state, index):
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(split_key, index)
    return metric_fn(params, network_state, jax.vmap(sample)(keys))

  return make_evaluate(
    generated_metric_fn,
    np.arange(num_examples, dtype=np.int32),
    global_batch_size=global_batch_size,
    devices=devices,
  )


def _split_size(examples: ArrayTree) -> int:
  sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(examples)}
  if len(sizes) != 1 or sizes & {(), (0,)}:
    raise ValueError(
      'The arrays of a split need the same leading axis, one or more '
      'examples; got the shapes '
      f'{[np.shape(leaf) for leaf in jax.tree.leaves(examples)]}.'
    )
  (size,) = sizes.pop()
  return size


def _num_batches(num_examples: int, batch_size: int) -> int:
  return -(-num_examples // batch_size)  # The last one may be ragged.


def _take(examples: ArrayTree, index: np.ndarray) -> ArrayTree:
  return jax.tree.map(lambda leaf: leaf[index], examples)


def _check_metrics(metrics: SumsAndCounts, per_device: int) -> None:
  for name, pair in metrics.items():
    shapes = [np.shape(values) for values in pair]
    if shapes != [(per_device,), (per_device,)]:
      raise ValueError(
        f'metric_fn must return a sum and a count for each of the '
        f'{per_device} examples; {name!r} came with the shapes {shapes}. '
        'See jax.vmap(metrics.accuracy).'
      )
