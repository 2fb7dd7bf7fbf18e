"""Sums metrics over the updates between two lines of the log."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from rmc_jax import metrics as metrics_lib
from rmc_jax.metrics import SumsAndCounts


class Interval:
  """Sums and counts since the last line of the log, and calls in flight.

  `saved`, from a checkpoint, is a result of `to_json`.
  """

  def __init__(self, saved: dict[str, list] | None = None):
    self._sums: SumsAndCounts = {
      name: (np.float64(total), np.float64(count))
      for name, (total, count) in (saved or {}).items()
    }
    self._in_flight: deque[tuple[int, SumsAndCounts]] = deque()

  def append(self, step: int, metrics: SumsAndCounts) -> None:
    """Adds the metrics of a call that ends at `step`, without reading them."""
    self._in_flight.append((step, metrics))

  def read(self, wait: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Adds the metrics of calls to the interval; yields their steps and means.

    Without `wait`, one call may stay in flight.
    """
    while len(self._in_flight) > (0 if wait else _calls_ahead()):
      step, metrics = self._in_flight.popleft()
      metrics = jax.tree.map(np.float64, jax.device_get(metrics))
      # The names differ if the program has changed since the checkpoint.
      if self._sums.keys() == metrics.keys():
        self._sums = metrics_lib.merge(self._sums, metrics)
      else:
        self._sums = metrics
      yield step, metrics_lib.divide(metrics)

  def take(self) -> dict[str, Any]:
    """Returns the means of the interval and starts a new one."""
    sums, self._sums = self._sums, {}
    return metrics_lib.divide(sums)

  def to_json(self) -> dict[str, list]:
    """Returns sums and counts, which survive JSON bit for bit."""
    return {
      name: [np.asarray(each).tolist() for each in pair]
      for name, pair in self._sums.items()
    }


def _calls_ahead() -> int:
  """Returns how many calls may be in flight while the loop continues.

  One, so that the device does not wait for the host to read metrics. None on
  the CPU, where overlapping collectives of several processes can deadlock.
  """
  return 0 if jax.default_backend() == 'cpu' else 1
