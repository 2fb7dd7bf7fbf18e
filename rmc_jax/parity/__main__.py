"""`python -m rmc_jax.parity`: the ladder, from the command line.

  python -m rmc_jax.parity              beside the original (launch/parity.sh)
  python -m rmc_jax.parity --goldens    against the files in goldens/, at once

Prints a table; exits with 0 only if every rung passes.
"""

import argparse
import functools
import sys

import numpy as np

from rmc_jax.parity import cases
from rmc_jax.parity import goldens
from rmc_jax.parity import live
from rmc_jax.parity import reference
from rmc_jax.parity import report


def main() -> int:
  """Climbs the ladder and says how it went; returns the exit code."""
  options = _parse()
  say = _nothing if options.json else functools.partial(print, flush=True)
  if options.goldens:
    gaps = []
    say(report.header())
    for gap in goldens.check():
      gaps.append(gap)
      say(report.line(gap))
    references = goldens.references()
  else:
    try:
      current = reference.find(options.python)
      old = reference.find_1_26(options.python)
    except FileNotFoundError as error:
      sys.stderr.write(f'{error}\n')
      return 1
    gaps = _climb(options, current, old, say)
    references = [current.about] + ([old.about] if old.about else [])

  if options.json:
    print(report.to_json(gaps, references))
  else:
    print(f'\n{report.LEGEND}\n')
    for versions in references:
      print(f'The original: {report.about(versions)}.')
    print(report.verdict(gaps))
  return 0 if all(gap.passed for gap in gaps) else 1


def _climb(options, current, old, say):
  """All rungs beside the original; two lines for random ones that pass."""
  fill = np.random.default_rng(options.seed).standard_normal
  say(report.header())
  gaps = []
  for gap in live.climb(cases.ladder(fill), current, old):
    gaps.append(gap)
    say(report.line(gap))
  for gap in live.climb_checkpoints(fill, current):
    gaps.append(gap)
    say(report.line(gap))

  rungs = cases.random_rungs(options.configurations, options.seed)
  drawn = [rung for pair in rungs for rung in pair]
  random = {'steps': [], 'gradients': []}
  for gap in live.climb(drawn, current, old):
    gaps.append(gap)
    random[gap.rung.name].append(gap)
    if options.all or not gap.passed:
      say(report.line(gap))
  for group in random.values():
    if group:
      say(report.summary_line(group))
  return gaps


def _nothing(line: str) -> None:
  """The table, where JSON is asked for instead."""


def _parse() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog='python -m rmc_jax.parity',
    description="Compares rmc_jax.RelationalMemory with the authors' Sonnet "
    'module, number by number.',
  )
  parser.add_argument(
    '--configurations',
    type=int,
    default=50,
    metavar='COUNT',
    help='random configurations over all arguments (default: 50)',
  )
  parser.add_argument(
    '--seed', type=int, default=0, help='of weights, inputs and configurations'
  )
  parser.add_argument(
    '--all', action='store_true', help='a line for each random configuration'
  )
  parser.add_argument(
    '--json', action='store_true', help='print JSON instead of the table'
  )
  parser.add_argument(
    '--goldens',
    action='store_true',
    help='compare with stored results of the original; needs no TensorFlow',
  )
  parser.add_argument(
    '--python',
    help='interpreter with TensorFlow and dm-sonnet (default: the '
    'one that launch/parity.sh made)',
  )
  return parser.parse_args()


if __name__ == '__main__':
  sys.exit(main())
