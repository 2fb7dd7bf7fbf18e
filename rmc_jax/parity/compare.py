"""How far two sides are apart on a rung, and whether that is near enough."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rmc_jax.parity.cases import Rung

# A float64 run of the same arithmetic is the truth that float32 runs miss by
# their rounding. Ours may miss it by twice as much as the original's, and by
# this fraction more: where both are within four roundings of the largest entry,
# which one is nearer is luck.
FLOOR = 4 * float(np.finfo(np.float32).eps)
# Both sides in float64 must agree to the rung's tolerance in float64's units.
DOUBLE_PER_SINGLE = float(np.finfo(np.float64).eps / np.finfo(np.float32).eps)

Results = Mapping[str, np.ndarray]


class Gap(NamedTuple):
  """The largest difference on a rung; all but `absolute` are relative.

  A relative difference is one divided by the largest entry of the array it is
  found in, or by a thousandth of the largest entry on the whole rung where the
  array is smaller than that.

  Attributes:
    rung: what was compared.
    absolute: ours from the original's, both in float32.
    relative: the same, relative.
    ours: ours in float32 from the original's in float64.
    theirs: the original's in float32 from the original's in float64.
    double: ours from the original's, both in float64.
    where: the array with the largest relative difference.
  """

  rung: Rung
  absolute: float
  relative: float
  ours: float
  theirs: float
  double: float
  where: str

  @property
  def allowed(self) -> float:
    """The largest `relative` allowed.

    The rung's tolerance; or three times what the original itself is away from
    float64, which is what twice that for ours comes to. That counts where the
    numbers are badly conditioned, as a layer norm over two features is. Where
    the tolerance is 0, no rounding is involved and none is allowed.
    """
    if self.rung.tolerance == 0:
      return 0.0
    return max(self.rung.tolerance, 3 * self.theirs + FLOOR)

  @property
  def passed(self) -> bool:
    """Whether all that is asked of the rung holds; never where a NaN is."""
    if self.rung.statistical:
      return self.relative <= self.rung.tolerance
    return (
      self.relative <= self.allowed
      and self.ours <= 2 * self.theirs + FLOOR
      and self.double <= self.allowed * DOUBLE_PER_SINGLE
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
  scale = {name: np.max(np.abs(theirs64[name])) for name in names}
  largest = max(scale.values())

  def differences(left: Results, right: Results) -> dict[str, float]:
    return {
      # In float64, so that the subtraction adds no rounding of its own.
      name: float(np.max(np.abs(left[name].astype(np.float64) - right[name])))
      for name in names
    }

  def relative(left: Results, right: Results) -> dict[str, float]:
    return {
      name: value / max(scale[name], 1e-3 * largest)
      for name, value in differences(left, right).items()
    }

  relatives = relative(ours32, theirs32)
  return Gap(
    rung=rung,
    absolute=_largest(differences(ours32, theirs32)),
    relative=_largest(relatives),
    ours=_largest(relative(ours32, theirs64)),
    theirs=_largest(relative(theirs32, theirs64)),
    double=_largest(relative(ours64, theirs64)),
    where=max(
      relatives, key=lambda name: np.nan_to_num(relatives[name], nan=np.inf)
    ),
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


def _largest(values: Mapping[str, float]) -> float:
  """The maximum, NaN if any is NaN."""
  return float(np.max(list(values.values())))
