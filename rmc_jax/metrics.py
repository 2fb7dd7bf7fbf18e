"""Metrics as sums and counts, which travel, and the one division at the end.

A metric is a pair (sum, count). Pairs from several devices, updates or batches
are added; only `divide`, on the host, makes a mean of them. So a ragged last
batch or an unequal mask weighs what it should.
"""

from collections.abc import Mapping
from typing import Any
from typing import TypeAlias

import chex
import jax.numpy as jnp
import numpy as np

from rmc_jax.types import Array

# name -> (sum, count): 0-d JAX arrays on the devices, floats on the host.
SumsAndCounts: TypeAlias = Mapping[str, tuple[Any, Any]]


def accuracy(
  logits: Array, labels: Array, weights: Array | None = None
) -> tuple[Array, Array]:
  """Counts the labels that have the largest logit.

  Reduction: SUM over all leading axes; `jax.vmap(accuracy)` gives one pair for
  each example. Of equal logits the first wins.

  Args:
    logits: [..., C], C the number of classes.
    labels: [...] integers in 0..C-1; any value where the weight is 0.
    weights: [...] how much each label counts, 0 to leave it out (a mask of
      bools will do); None counts each as 1.

  Returns:
    The weight of the right answers [] and the total weight [], both float32.
  """
  chex.assert_type(labels, int)
  chex.assert_shape(labels, logits.shape[:-1])
  correct = (logits.argmax(-1) == labels).astype(jnp.float32)  # [...]
  if weights is None:
    return correct.sum(), jnp.asarray(correct.size, jnp.float32)
  chex.assert_shape(weights, labels.shape)
  weights = weights.astype(jnp.float32)
  return (weights * correct).sum(), weights.sum()


def merge(first: SumsAndCounts, *rest: SumsAndCounts) -> SumsAndCounts:
  """Adds sums to sums and counts to counts.

  Raises:
    ValueError: the names differ, so that some mean would be over less than it
      says; the message lists the names that are not in all of them.
  """
  merged = dict(first)
  for other in rest:
    if unmatched := sorted(merged.keys() ^ other.keys()):
      raise ValueError(
        f'Metrics to be merged must have the same names; {unmatched} are '
        'not in all of them.'
      )
    merged = {
      name: (total + other[name][0], count + other[name][1])
      for name, (total, count) in merged.items()
    }
  return merged


def divide(metrics: SumsAndCounts) -> dict[str, float]:
  """The means, as Python floats: sum / count for each name.

  Reads the arrays, and so waits for the devices. A count of zero gives nan, not
  an error: that nothing was counted (no episode ended in this interval) is a
  fact to be logged, which the progress line shows as nan.
  """
  means = {}
  for name, (total, count) in metrics.items():
    total, count = np.float64(total), np.float64(count)
    means[name] = float(total / count) if count else float('nan')
  return means
