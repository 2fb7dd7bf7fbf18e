"""Evaluates a whole split, each example exactly once.

The last global batch is padded with copies of the last example, which do not
count. Returns sums and counts over all examples; `metrics.divide` makes means.
"""

from collections.abc import Callable
import operator

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax import metrics as metrics_lib
from rmc_jax.metrics import SumsAndCounts
from rmc_jax.training import parallel
from rmc_jax.training.state import TrainState
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

# (params, network_state, batch) -> name -> (sums, counts), [B] or [B, ...]
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
  """Makes a function that evaluates a split held on the host.

  Args:
    metric_fn: returns a sum and a count for each example of the batch, such as
      `jax.vmap(losses.softmax_cross_entropy)(logits, labels)`, or arrays of
      both. Gets no key: dropout is off.
    examples: leaves [examples, ...], the whole split, the same on every
      process; each process loads its own part of every batch.
    global_batch_size: examples in a batch, over all devices of the job.
    devices: see `parallel`.

  Returns:
    `evaluate(state) -> name -> (sum, count)` in float64. The state comes from
    `place_state` or an update and is not donated. A collective of all
    processes; all get the same result.

  Raises:
    ConfigurationError: the global batch does not divide over the devices.
    ValueError: the arrays differ in their number of examples, or have none;
      from `evaluate`, a metric is not a pair for each example.
  """
  per_device = parallel.per_device_batch_size(global_batch_size, devices)
  rows = parallel.process_rows(global_batch_size, devices)
  num_examples = parallel.num_examples(examples)

  def batch_sums(variables, carry, batch):
    params, network_state = variables
    metrics = metric_fn(params, network_state, batch['examples'])
    _check_metrics(metrics, per_device)
    real = batch['is_real']  # [B / devices]
    sums = jax.tree.map(lambda values: _masked_sum(values, real), metrics)
    return (real.sum(), sums), carry

  total = parallel.parallel_map(batch_sums, devices)

  def evaluate(state):
    counted, totals = 0, []
    for first in range(0, num_examples, global_batch_size):
      index = np.arange(first + rows.start, first + rows.stop)
      place = np.minimum(index, num_examples - 1)
      batch = {
        'examples': jax.tree.map(operator.itemgetter(place), examples),
        'is_real': index < num_examples,
      }
      (real, sums), _ = total(
        (state.params, state.network_state),
        (),
        parallel.split_batch(batch, devices),
      )
      real, sums = jax.device_get((real, sums))
      counted += int(real)
      # In float64, because float32 sums are inexact after some millions.
      totals.append(jax.tree.map(np.float64, sums))
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
  """Like `make_evaluate`, for a split that is generated on the devices.

  Example i, without a batch axis, is `sample(fold_in(split_key, i))`. Use
  another key than for training.
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


def _masked_sum(values: Array, real: Array) -> Array:
  """Returns the sum [...] of the real rows of [B, ...]."""
  real = real.reshape(-1, *[1] * (values.ndim - 1))
  # Not a product, because the metric of padding may be nan.
  return jnp.where(real, values, 0).sum(0)


def _check_metrics(metrics: SumsAndCounts, per_device: int) -> None:
  for name, pair in metrics.items():
    shapes = [np.shape(values) for values in pair]
    if (
      len(set(shapes)) != 1 or shapes[0][:1] != (per_device,) or len(pair) != 2
    ):
      raise ValueError(
        f'metric_fn must return a sum and a count for each of the '
        f'{per_device} examples, such as jax.vmap(metrics.accuracy) does. Got '
        f'shapes of {name!r}: {shapes}.'
      )
