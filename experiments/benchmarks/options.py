"""The flags that benchmarks share."""

import argparse
from collections.abc import Callable
from collections.abc import Collection
import pathlib

from experiments.benchmarks import machine


def parser(
  benchmark: str,
  description: str,
  sizes: Collection[str],
  default_sizes: Collection[str],
) -> argparse.ArgumentParser:
  """A parser of --sizes, --rounds, --device, --turn_seconds, --limit, --output.

  Args:
    benchmark: the module's name.
    description: one sentence.
    sizes: the names that --sizes takes.
    default_sizes: those measured without --sizes.
  """
  result = argparse.ArgumentParser(
    prog=f'python -m experiments.benchmarks.{benchmark}',
    description=description,
  )
  result.add_argument(
    '--sizes',
    type=some_of(sizes),
    default=list(default_sizes),
    help=f'of {", ".join(sizes)}; or all (default: {",".join(default_sizes)})',
  )
  result.add_argument(
    '--rounds', type=positive, default=5, help='turns of each (default: 5)'
  )
  result.add_argument(
    '--device',
    choices=('cpu', 'gpu'),
    default='gpu' if machine.gpu() else 'cpu',
    help='default: a GPU where there is one',
  )
  result.add_argument(
    '--turn_seconds',
    type=float,
    default=2.0,
    help='how long a turn should be; at least two steps (default: 2)',
  )
  result.add_argument(
    '--limit',
    type=float,
    default=300.0,
    help='seconds until a build or a turn counts as hung (default: 300)',
  )
  result.add_argument(
    '--output', type=pathlib.Path, help='where to write everything, as JSON'
  )
  return result


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
  """The type of a flag that takes names with commas between them, or 'all'."""

  def parse(names: str) -> list[str]:
    if names == 'all':
      return list(known)
    for name in (chosen := names.split(',')):
      if name not in known:
        raise argparse.ArgumentTypeError(
          f'there is no {name!r}; expected some of {", ".join(known)}'
        )
    return chosen

  return parse


def positive(text: str) -> int:
  """The type of a flag that takes a number of at least 1."""
  if not text.isdigit() or int(text) < 1:
    raise argparse.ArgumentTypeError(f'{text!r} is no number of at least 1')
  return int(text)
