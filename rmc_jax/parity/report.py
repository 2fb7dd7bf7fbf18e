"""Comparisons as a table for people and as JSON for programs."""

from collections.abc import Iterable
from collections.abc import Sequence
import json
import math
from typing import Any

from rmc_jax.parity.compare import Comparison

_FORMAT = '{:<20} {:>8} {:>8} {:>8}   {:>8} {:>8}   {:>8}   {:<4}  {}'
HEADER = _FORMAT.format(
  *('case', 'absolute', 'relative', 'allowed', 'ours', 'theirs', 'float64'),
  *('', 'configuration'),
)
LEGEND = """\
absolute, relative   largest difference in float32; relative to the largest
                     entry of the case
allowed              largest `relative`: rmc_jax/parity/cases.py has the reasons
ours, theirs         error of float32 against the original's float64; ours may
                     be twice theirs plus four roundings
float64              largest relative difference with both sides in float64"""


def line(comparison: Comparison) -> str:
  """The row of one case."""
  name, _, configuration = comparison.case
  return _line(name, configuration, [comparison])


def summary_line(comparisons: Sequence[Comparison]) -> str:
  """One row for cases of one name: the largest number in each column."""
  worst = max(comparisons, key=lambda c: _order(c.relative)).case
  return _line(
    f'{worst.name}, {len(comparisons)} random',
    f'worst: {worst.configuration}',
    comparisons,
  )


def verdict(comparisons: Sequence[Comparison]) -> str:
  """How many cases passed, and the names of those that did not."""
  failed = [
    f'  {c.case.name}: {c.case.configuration}: {c.where}'
    for c in comparisons
    if not c.passed
  ]
  if not failed:
    return f'All {len(comparisons)} cases pass.'
  first = f'{len(failed)} of {len(comparisons)} cases FAIL:'
  return '\n'.join([first, *failed])


def about(versions: dict[str, Any]) -> str:
  """The versions of an original, and whether it was shimmed."""
  how = 'shims for the names it imports' if versions['shimmed'] else 'untouched'
  return (
    f'dm-sonnet {versions["sonnet"]} on TensorFlow {versions["tensorflow"]}, '
    f'Python {versions["python"]}, {how}'
  )


def to_json(
  comparisons: Iterable[Comparison], references: Sequence[dict[str, Any]]
) -> str:
  """Every case with all its numbers."""
  cases = [
    {
      'case': c.case.name,
      'configuration': c.case.configuration,
      'absolute': c.absolute,
      'relative': c.relative,
      'tolerance': c.case.tolerance,
      'ours_from_float64': c.ours,
      'theirs_from_float64': c.theirs,
      'both_float64': c.double,
      'where': c.where,
      'passed': c.passed,
    }
    for c in comparisons
  ]
  return json.dumps({'references': references, 'cases': cases}, indent=2)


def _line(
  name: str, configuration: str, comparisons: Sequence[Comparison]
) -> str:
  numbers = [
    max((getattr(c, column) for c in comparisons), key=_order)
    for column in ('absolute', 'relative', 'ours', 'theirs', 'double')
  ]
  absolute, relative, *errors = map('{:.1e}'.format, numbers)
  return _FORMAT.format(
    name,
    absolute,
    relative,
    f'{comparisons[0].case.tolerance:.0e}',
    *errors,
    'pass' if all(c.passed for c in comparisons) else 'FAIL',
    configuration,
  )


def _order(value: float) -> float:
  """Sorts NaN above everything, so that no maximum hides it."""
  return math.inf if math.isnan(value) else value
