"""How far two sides are apart on a rung, and whether that is near enough."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rmc_jax.parity.cases import Rung

# A float64 run of the same arithmetic is the truth that float32 runs miss by
# their rounding. Ours may miss it by twice as much as the original's, and by
# this fraction more: where both are within four roundings of the largest entry,
# which one is nearer is luck again.
FLOOR = 4 * float(np.finfo(np.float32).eps)
# Both sides in float64 must agree to the rung's tolerance in float64's units.
DOUBLE_PER_SINGLE = float(np.finfo(np.float64).eps / np.finfo(np.float32).eps)

Results = Mapping[str, np.ndarray]


class Gap(NamedTuple):
  """The differences on a rung.

  Relative ones are fractions of the largest entry on the whole rung: a small
  gradient may be a sum of large terms that cancel, and is no more exact than
  they are.

  Attributes:
    rung: what was compared.
    absolute: largest difference of ours from the original's in float32.
    relative: the same, relative.
    where: the array that has it.
    ours: error of our float32 run, the original's float64 run being the truth:
      root mean square over the arrays of the largest relative difference in
      each. One array's is luck; a careless formula shows in all.
    theirs: the same for the original's own float32 run.
    double: largest relative difference with both sides in float64.
  """

  rung: Rung
  absolute: float
  relative: float
  where: str
  ours: float
  theirs: float
  double: float

  @property
  def passed(self) -> bool:
    """Whether all that is asked of the rung holds; never where a NaN is."""
    near = self.relative <= self.rung.tolerance
    if self.rung.statistical:
      return near
    return (
      near
      and self.ours <= 2 * self.theirs + FLOOR
      and self.double <= self.rung.tolerance * DOUBLE_PER_SINGLE
    )


def gap(
  rung: Rung,
  ours32: Results,
  ours64: Results,
  theirs32: Results,
  theirs64: Results,
) -> Gap:
  """Compares the results that the rung is about.

  Raises:
    ValueError: a side lacks a result, or has it in another shape.
  """
  names = [name for name in theirs64 if name.startswith(rung.keys)]
  for results in ours32, ours64, theirs32:
    _check_same_arrays(rung, names, results, theirs64)
  scale = max(np.max(np.abs(theirs64[name])) for name in names)

  def differences(left: Results, right: Results) -> np.ndarray:
    # In float64, so that subtracting adds no rounding of its own.
    return np.array(
      [np.max(np.abs(np.float64(left[name]) - right[name])) for name in names]
    )

  def error(run: Results) -> float:
    return float(np.sqrt(np.mean((differences(run, theirs64) / scale) ** 2)))

  apart = differences(ours32, theirs32)
  return Gap(
    rung=rung,
    absolute=float(apart.max()),
    relative=float(apart.max() / scale),
    where=names[int(np.argmax(apart))],
    ours=error(ours32),
    theirs=error(theirs32),
    double=float(differences(ours64, theirs64).max() / scale),
  )


def _check_same_arrays(
  rung: Rung, names: list[str], left: Results, right: Results
) -> None:
  found = [name for name in left if name.startswith(rung.keys)]
  if not names or set(found) != set(names):
    raise ValueError(
      f'{rung.name}, {rung.configuration}: results {sorted(found)}, expected '
      f'{sorted(names)}.'
    )
  for name in names:
    if left[name].shape != right[name].shape:
      raise ValueError(
        f'{rung.name}, {rung.configuration}: {name} has shape '
        f'{left[name].shape}, expected {right[name].shape}.'
      )
