"""The ladder's gaps as a table for people and as JSON for programs."""

from collections.abc import Iterable
from collections.abc import Sequence
import json
import math
from typing import Any

from rmc_jax.parity.compare import Gap

_HEADER = (
  'rung',
  'absolute',
  'relative',
  'allowed',
  'ours',
  'theirs',
  'float64',
  '',
  'configuration',
)
_FORMAT = '{:<20} {:>8} {:>8} {:>8}   {:>8} {:>8}   {:>8}   {:<4}  {}'
LEGEND = """\
absolute, relative   largest difference in float32; relative to the largest
                     entry on the rung
allowed              of `relative`: rmc_jax/parity/cases.py has the reasons
ours, theirs         error of float32, the original's float64 being the truth;
                     ours may be twice theirs and four roundings more
float64              largest relative difference with both sides in float64"""


def header() -> str:
  """The names of the columns."""
  return _FORMAT.format(*_HEADER).rstrip()


def line(gap: Gap) -> str:
  """One rung."""
  return _line(gap.rung.name, gap.rung.configuration, [gap], gap.rung.tolerance)


def summary_line(gaps: Sequence[Gap]) -> str:
  """Many configurations of one kind: the largest number in each column."""
  worst = max(gaps, key=lambda gap: _order(gap.relative))
  name = worst.rung.name
  return _line(
    f'{name}, {len(gaps)} random',
    f'worst: {worst.rung.configuration}',
    gaps,
    worst.rung.tolerance,
  )


def verdict(gaps: Sequence[Gap]) -> str:
  """How many rungs passed, and the names of those that did not."""
  failed = [gap for gap in gaps if not gap.passed]
  if not failed:
    return f'All {len(gaps)} rungs pass.'
  lines = [f'{len(failed)} of {len(gaps)} rungs FAIL:']
  lines += [
    f'  {gap.rung.name}: {gap.rung.configuration}: {gap.where}'
    for gap in failed
  ]
  return '\n'.join(lines)


def about(versions: dict[str, Any]) -> str:
  """Which original it was, in a sentence's worth of words."""
  how = 'shims for the names it imports' if versions['shimmed'] else 'untouched'
  return (
    f'dm-sonnet {versions["sonnet"]} on TensorFlow {versions["tensorflow"]}, '
    f'Python {versions["python"]}, {how}'
  )


def to_json(gaps: Iterable[Gap], references: Sequence[dict[str, Any]]) -> str:
  """Every rung with all its numbers."""
  rungs = [
    {
      'rung': gap.rung.name,
      'configuration': gap.rung.configuration,
      'absolute': gap.absolute,
      'relative': gap.relative,
      'tolerance': gap.rung.tolerance,
      'ours_from_float64': gap.ours,
      'theirs_from_float64': gap.theirs,
      'both_float64': gap.double,
      'where': gap.where,
      'passed': gap.passed,
    }
    for gap in gaps
  ]
  return json.dumps({'references': references, 'rungs': rungs}, indent=2)


def _line(
  name: str, configuration: str, gaps: Sequence[Gap], allowed: float
) -> str:
  numbers = [
    max((getattr(gap, column) for gap in gaps), key=_order)
    for column in ('absolute', 'relative', 'ours', 'theirs', 'double')
  ]
  absolute, relative, ours, theirs, double = map('{:.1e}'.format, numbers)
  return _FORMAT.format(
    name,
    absolute,
    relative,
    f'{allowed:.0e}',
    ours,
    theirs,
    double,
    'pass' if all(gap.passed for gap in gaps) else 'FAIL',
    configuration,
  )


def _order(value: float) -> float:
  """NaN above everything: it must not be lost in a maximum."""
  return math.inf if math.isnan(value) else value
