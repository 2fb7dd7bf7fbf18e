"""The flags, statistics, tables and JSON file that the benchmarks share."""

import argparse
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import json
import pathlib
import statistics
import sys
from typing import Any
from typing import NamedTuple

from rich.console import Console
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from experiments.benchmarks import machine
from experiments.benchmarks.harness import Failed

PRECISIONS = ('float32', 'tf32', 'bfloat16')
Entry = Mapping[str, Any]  # of an implementation, see harness.Session


def make_parser(
  module: str, page: str | None, sizes: Collection[str], default: str
) -> argparse.ArgumentParser:
  """Makes a parser of the flags that all benchmarks have.

  The help shows the first line of `page`; `default` is that of --sizes.
  """
  parser = argparse.ArgumentParser(
    prog=f'python -m experiments.benchmarks.{module}',
    description=str(page).partition('\n')[0],
    formatter_class=argparse.ArgumentDefaultsHelpFormatter,
  )
  add = parser.add_argument
  names = f'of {", ".join(sizes)}; or all'
  add('--sizes', type=names_of(sizes), default=default, help=names)
  add('--trials', type=positive, default=5, help='of each implementation')
  device = 'gpu' if machine.gpu() else 'cpu'
  add('--device', choices=('cpu', 'gpu'), default=device, help='of all steps')
  seconds = 'length of a trial, which has at least two steps'
  add('--trial_seconds', type=float, default=2.0, help=seconds)
  limit = 'seconds until a build or a trial counts as hung'
  add('--limit', type=float, default=300.0, help=limit)
  add('--output', type=pathlib.Path, help='JSON file to write')
  return parser


def add_precision(parser: argparse.ArgumentParser) -> None:
  """Adds --precision."""
  parser.add_argument(
    '--precision',
    choices=PRECISIONS,
    default='float32',
    help='of the factors of matrix products',
  )


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
  """Returns the type of a flag of comma-separated names, or 'all'."""

  def parse(text: str) -> list[str]:
    names = list(known) if text == 'all' else text.split(',')
    for name in names:
      if name not in known:
        raise argparse.ArgumentTypeError(
          f'unknown name {name!r}; expected some of {", ".join(known)}'
        )
    return names

  return parse


def positive(text: str) -> int:
  """Parses a flag that takes an integer of at least 1."""
  if not text.isdigit() or int(text) < 1:
    raise argparse.ArgumentTypeError(
      f'got {text!r}; expected an integer of at least 1'
    )
  return int(text)


def run(
  parser: argparse.ArgumentParser,
  options: argparse.Namespace,
  arguments: Sequence[str] | None,
  measure: Callable[[str, argparse.Namespace], Any],
  table: Callable[[str, Any], RenderableType],
) -> dict[str, Any]:
  """Measures size after size; prints the tables and writes the JSON file.

  Args:
    parser: of the benchmark.
    options: the parsed flags.
    arguments: the flags as given; None for those of the process.
    measure: (size, options) -> the entry of the size in the JSON file, whose
      content is returned.
    table: (size, measured) -> what to print.
  """
  given = sys.argv[1:] if arguments is None else arguments
  results: dict[str, Any] = {
    **machine.describe(parser.prog, given),
    'device': options.device,
    'sizes': {},
  }
  console = Console(width=160)  # also where the output is not a terminal
  for size in options.sizes:
    try:
      results['sizes'][size] = measured = measure(size, options)
    except Failed as failed:
      raise SystemExit(f'{parser.prog}: {size}: {failed}') from failed
    console.print(table(size, measured))
    if options.output:
      options.output.write_text(json.dumps(results, indent=1))
  return results


class Spread(NamedTuple):
  """The median, lowest and highest of one value for each trial."""

  median: float
  low: float
  high: float

  @classmethod
  def of(cls, values: Sequence[float]) -> 'Spread':
    return cls(statistics.median(values), min(values), max(values))

  def text(self, form: str, factor: float = 1.0, separator: str = '\n') -> str:
    """Formats the median, then the lowest to the highest."""
    median, low, high = (format(factor * value, form) for value in self)
    return f'{median}{separator}({low} to {high})'


def trial_times(entry: Entry, step: str = 'train') -> list[float]:
  """Returns the median step of each trial, in seconds."""
  return [statistics.median(trial) for trial in entry['seconds'][step]]


def step_time(entry: Entry, step: str = 'train') -> Spread:
  """Returns the spread over the trials of their median steps, in seconds."""
  return Spread.of(trial_times(entry, step))


def ratio(entry: Entry, base: Entry, step: str = 'train') -> Spread:
  """Returns the time relative to `base` within each trial.

  The two trials follow each other closely, so a machine that is slow for a
  minute does not change their ratio.
  """
  pairs = zip(trial_times(entry, step), trial_times(base, step), strict=True)
  return Spread.of([time / other for time, other in pairs])


def timed(measured: Mapping[str, Any]) -> dict[str, Entry]:
  """Returns the entries of the implementations that were not left out."""
  entries = measured['implementations'].items()
  return {name: entry for name, entry in entries if 'left_out' not in entry}


def make_table(
  title: str,
  label: str,
  rows: Mapping[str, Mapping[str, str]],
  measured: Mapping[str, Any] | None = None,
  notes: Sequence[str] = (),
) -> Table:
  """Makes a table.

  Args:
    title: its title.
    label: the header of the first column.
    rows: first column -> header -> cell; missing cells are empty.
    measured: the result of a session; the caption lists what was left out.
    notes: the first lines of the caption.
  """
  caption = list(notes)
  if measured:
    caption.append(
      'Medians (lowest to highest of the trials). Idle implementations used '
      f'{measured["idle_share"]:.1%} of a core or less.'
    )
    for name, entry in measured['implementations'].items():
      if 'left_out' in entry:
        caption.append(f'{name}: {entry["left_out"]}')
  table = Table(
    title=title, caption=escape('\n'.join(caption)), caption_justify='left'
  )
  table.add_column(label, no_wrap=True)
  headers = list(dict.fromkeys(h for cells in rows.values() for h in cells))
  for header in headers:
    table.add_column(header, justify='right', no_wrap=True)
  for name, cells in rows.items():
    table.add_row(name, *[cells.get(header, '') for header in headers])
  return table


def megabytes(count: int | None) -> str:
  """Formats bytes for a table; '' where unknown."""
  return '' if count is None else f'{count / 1e6:.0f}'
