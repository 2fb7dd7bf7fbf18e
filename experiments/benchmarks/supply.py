"""Rates of what makes data and of what uses it: flags, turns, a table."""

import argparse
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import pathlib
import time

from rich.table import Table

from experiments.benchmarks import contest
from experiments.benchmarks import options as options_lib


def make_parser(
  name: str, page: str, sizes: Collection[str], fastest: str
) -> argparse.ArgumentParser:
  """The flags of such a benchmark.

  Args:
    name: its module.
    page: the module's docstring, of which the first line is shown.
    sizes: names of what can be measured.
    fastest: of these, what trains fastest, so that it needs most.

  Returns:
    A parser of sizes, rounds, turn_seconds and output.
  """
  parser = argparse.ArgumentParser(
    prog=f'python -m experiments.benchmarks.{name}',
    description=page.partition('\n')[0],
  )
  parser.add_argument(
    '--sizes',
    type=options_lib.some_of(sizes),
    default=[fastest],
    help=f'of {", ".join(sizes)}; or all (default: {fastest}, which trains '
    'fastest)',
  )
  parser.add_argument(
    '--rounds',
    type=options_lib.positive,
    default=5,
    help='turns of each (default: 5)',
  )
  parser.add_argument(
    '--turn_seconds',
    type=float,
    default=2.0,
    help='how long a turn should be; at least one call (default: 2)',
  )
  parser.add_argument(
    '--output', type=pathlib.Path, help='where to write everything, as JSON'
  )
  return parser


def take_turns(
  make: Callable[[], int],
  use: Callable[[], int],
  rounds: int,
  turn_seconds: float,
) -> dict[str, list[float]]:
  """How much is made and used by the second, a number for each round.

  Args:
    make: makes some data and does nothing else; returns how much.
    use: trains, its data included; returns on how much.
    rounds: turns of each.
    turn_seconds: how long a turn should be; at least one call.

  Returns:
    'made' and 'used' -> [rounds] rates.
  """
  make()  # Compiles.
  use()
  measured = {'made': [], 'used': []}
  for _ in range(rounds):
    measured['made'].append(rate(make, turn_seconds))
    measured['used'].append(rate(use, turn_seconds))
  return measured


def rate(call: Callable[[], int], turn_seconds: float) -> float:
  """What a call returns, by the second, over a turn of calls."""
  total, start = 0, time.perf_counter()
  while (seconds := time.perf_counter() - start) < turn_seconds or not total:
    total += call()
  return total / seconds


def table(unit: str, sizes: Mapping[str, Mapping[str, list[float]]]) -> Table:
  """A row for each size; the ratio is that of each round."""
  shown = Table(caption='Medians (lowest to highest of the rounds).')
  shown.add_column('size')
  for column in (f'{unit}/s made', f'{unit}/s used', 'ratio'):
    shown.add_column(column, justify='right')
  for name, measured in sizes.items():
    ratios = [
      made / used
      for made, used in zip(measured['made'], measured['used'], strict=True)
    ]
    shown.add_row(
      name,
      contest.spread(measured['made']).text(',.0f'),
      contest.spread(measured['used']).text(',.0f'),
      contest.spread(ratios).text(',.1f'),
    )
  return shown
