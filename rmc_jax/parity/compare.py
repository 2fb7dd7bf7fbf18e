"""Compares the results of both sides on a case against its tolerance."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rmc_jax.parity.cases import Case
from rmc_jax.parity.reference import Results

# A float64 run of the same arithmetic is the truth that float32 runs miss by
# their rounding. Ours may miss it by twice as much as the original's plus this
# fraction: within four roundings of the largest entry, which side is nearer is
# chance.
FLOOR = 4 * float(np.finfo(np.float32).eps)
# Both sides in float64 must agree to the case's tolerance in float64's units.
DOUBLE_PER_SINGLE = float(np.finfo(np.float64).eps / np.finfo(np.float32).eps)


class Comparison(NamedTuple):
  """The differences on a case.

  Relative differences are fractions of the largest entry of the whole case: a
  small gradient may be a sum of large terms that cancel, and is no more exact
  than those terms.

  Attributes:
    case: the case compared.
    absolute: largest difference between ours and the original's in float32.
    relative: the same, relative.
    where: the array that has it.
    ours: error of our float32 run against the original's float64 run: root mean
      square over the arrays of the largest relative difference in each. One
      array's error is chance; a careless formula shows in all of them.
    theirs: the same for the original's own float32 run.
    double: largest relative difference with both sides in float64.
  """

  case: Case
  absolute: float
  relative: float
  where: str
  ours: float
  theirs: float
  double: float

  @property
  def passed(self) -> bool:
    """Whether every criterion holds; False if any number is NaN."""
    near = self.relative <= self.case.tolerance
    if self.case.statistical:
      return near
    return (
      near
      and self.ours <= 2 * self.theirs + FLOOR
      and self.double <= self.case.tolerance * DOUBLE_PER_SINGLE
    )


def compare(
  case: Case, ours: Sequence[Results], theirs: Sequence[Results]
) -> Comparison:
  """Compares the results that a case is about, each in float32 and in float64.

  Raises:
    ValueError: a result is missing, unknown or of another shape on one side.
  """
  (ours32, ours64), (theirs32, truth) = ours, theirs
  names = [name for name in truth if name.startswith(case.keys)]
  expected = {name: truth[name].shape for name in names}
  for run in ours32, ours64, theirs32:
    found = {k: x.shape for k, x in run.items() if k.startswith(case.keys)}
    if not names or found != expected:
      raise ValueError(
        f'{case.name}, {case.configuration}: results of the shapes {found}, '
        f'expected {expected}.'
      )
  scale = max(np.max(np.abs(truth[name])) for name in names)

  def differences(left: Results, right: Results) -> np.ndarray:
    # In float64, so that subtracting adds no rounding of its own.
    return np.array(
      [np.max(np.abs(np.float64(left[name]) - right[name])) for name in names]
    )

  def error(run: Results) -> float:
    return float(np.sqrt(np.mean((differences(run, truth) / scale) ** 2)))

  single = differences(ours32, theirs32)
  return Comparison(
    case=case,
    absolute=float(single.max()),
    relative=float(single.max() / scale),
    where=names[int(np.argmax(single))],
    ours=error(ours32),
    theirs=error(theirs32),
    double=float(differences(ours64, truth).max() / scale),
  )
