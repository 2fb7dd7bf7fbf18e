"""Metrics as pairs of a sum and a count.

Pairs from several devices, updates or batches are added, and `divide` computes
the means on the host. Every example then has the same weight, also in a smaller
last batch or under unequal masks.
"""

from collections.abc import Mapping
from typing import Any
from typing import TypeAlias

import chex
import jax.numpy as jnp
import numpy as np

from rmc_jax.types import Array

# name -> (sum, count): 0-d JAX arrays on devices, floats on the host.
SumsAndCounts: TypeAlias = Mapping[str, tuple[Any, Any]]


def accuracy(
  logits: Array, labels: Array, weights: Array | None = None
) -> tuple[Array, Array]:
  """Counts the labels that have the largest logit.

  Reduction: SUM over all leading axes; `jax.vmap(accuracy)` returns one pair
  per example. Among equal logits the first counts as the largest.

  Args:
    logits: [..., C], C the number of classes.
    labels: [...] integers in 0..C-1; any value where the weight is 0.
    weights: [...] weights or a boolean mask; None weights each label by 1.

  Returns:
    The weight of the correct labels [] and the total weight [], both float32.
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
    ValueError: the names differ.
  """
  merged = dict(first)
  for other in rest:
    if unmatched := sorted(merged.keys() ^ other.keys()):
      raise ValueError(
        'Metrics to merge must have the same names. Not in all of them: '
        f'{unmatched}.'
      )
    merged = {
      name: (total + other[name][0], count + other[name][1])
      for name, (total, count) in merged.items()
    }
  return merged


def divide(metrics: SumsAndCounts) -> dict[str, Any]:
  """Returns the means, sum / count, as Python floats.

  Blocks until the arrays are computed. A count of zero gives nan, for example
  if no episode ended in an interval. The [M] sums and counts of an ensemble
  give lists of M floats.
  """
  means = {}
  for name, (total, count) in metrics.items():
    total, count = np.float64(total), np.float64(count)
    mean = np.divide(
      total, count, where=count != 0, out=np.full_like(total, np.nan)
    )
    means[name] = mean.tolist()
  return means
