"""The parity suite on the command line.

  python -m rmc_jax.parity              beside the original (launch/parity.sh)
  python -m rmc_jax.parity --goldens    against the files in goldens/, at once

Prints a table; exits with 0 only if every case passes.
"""

import argparse
import collections
from collections.abc import Callable
from collections.abc import Iterable
import functools
import io
import itertools
import sys

import numpy as np

from rmc_jax.parity import cases
from rmc_jax.parity import goldens
from rmc_jax.parity import live
from rmc_jax.parity import reference
from rmc_jax.parity import report
from rmc_jax.parity.compare import Comparison

PrintFn = Callable[[str], None]


def main() -> int:
  """Runs the suite and prints the comparisons; returns the exit code."""
  options = _parse()
  file = io.StringIO() if options.json else sys.stdout
  print_fn = functools.partial(print, file=file, flush=True)
  if options.goldens:
    comparisons = _print_table(goldens.check(), print_fn)
    references = goldens.references()
  else:
    try:
      current = reference.find(options.python)
      old = reference.find_1_26(options.python)
    except FileNotFoundError as error:
      sys.stderr.write(f'{error}\n')
      return 1
    comparisons = _run_live(options, current, old, print_fn)
    references = [
      original.about for original in (current, old) if original.about
    ]

  if options.json:
    print(report.to_json(comparisons, references))
  else:
    print(f'\n{report.LEGEND}\n')
    for versions in references:
      print(f'The original: {report.about(versions)}.')
    print(report.verdict(comparisons))
  return 0 if all(c.passed for c in comparisons) else 1


def _run_live(
  options: argparse.Namespace,
  current: reference.Reference,
  old: reference.Reference,
  print_fn: PrintFn,
) -> list[Comparison]:
  """Runs every case; passing random ones share a row for each name."""
  fill = np.random.default_rng(options.seed).standard_normal
  comparisons = _print_table(
    itertools.chain(
      live.compare_cases(cases.suite(fill), current, old),
      live.compare_checkpoints(fill, current),
    ),
    print_fn,
  )
  random = cases.random_cases(options.configurations, options.seed)
  by_name = collections.defaultdict(list)
  for comparison in live.compare_cases(random, current, old):
    by_name[comparison.case.name].append(comparison)
    if options.all or not comparison.passed:
      print_fn(report.line(comparison))
  for group in by_name.values():
    print_fn(report.summary_line(group))
    comparisons += group
  return comparisons


def _print_table(
  comparisons: Iterable[Comparison], print_fn: PrintFn
) -> list[Comparison]:
  """Prints each comparison as soon as it is made."""
  print_fn(report.HEADER)
  printed = []
  for comparison in comparisons:
    printed.append(comparison)
    print_fn(report.line(comparison))
  return printed


def _parse() -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog='python -m rmc_jax.parity',
    description="Compares rmc_jax.RelationalMemory with the authors' Sonnet "
    'module, number by number.',
  )
  add = parser.add_argument
  add(
    '--configurations',
    type=int,
    default=50,
    metavar='COUNT',
    help='random configurations over all arguments (default: 50)',
  )
  seed = 'of weights, inputs and configurations'
  add('--seed', type=int, default=0, help=seed)
  for flag, text in {
    '--all': 'a line for each random configuration',
    '--json': 'print JSON instead of the table',
    '--goldens': 'compare with stored results of the original; needs no '
    'TensorFlow',
  }.items():
    add(flag, action='store_true', help=text)
  add(
    '--python',
    help='interpreter with TensorFlow and dm-sonnet (default: the '
    'one that launch/parity.sh made)',
  )
  return parser.parse_args()


if __name__ == '__main__':
  sys.exit(main())
