"""What is to be run: an experiment or a sweep of it, as the trainer's commands.

The launchers run with any Python 3.11, before anything is installed. So they
import nothing of the project: what they share with it is read from its files.
"""

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import os
import pathlib
import runpy
import shlex
import sys
from typing import Any
from typing import NoReturn

ROOT = pathlib.Path(__file__).resolve().parent.parent
# DONE, PREEMPTED, DIVERGED and CONFIGURATION_ERROR, as the trainer has them.
EXIT_CODES = runpy.run_path(str(ROOT / 'rmc_jax/errors.py'))
DONE = EXIT_CODES['DONE']
PREEMPTED = EXIT_CODES['PREEMPTED']
DIVERGED = EXIT_CODES['DIVERGED']
CONFIGURATION_ERROR = EXIT_CODES['CONFIGURATION_ERROR']


@dataclasses.dataclass(frozen=True)
class Run:
  """One training run; in a job of several processes, the same in each.

  Attributes:
    experiment: a folder of experiments/.
    name: among the runs of its sweep; '' where there is no sweep.
    flags: those of the trainer.
    workdir: the folder of a run of a sweep, which is among its flags too.
  """

  experiment: str
  name: str
  flags: tuple[str, ...]
  workdir: str = ''

  def command(self, python: str, *more_flags: str) -> list[str]:
    """The trainer's command line, to be run with ROOT on the import path."""
    module = f'experiments.{self.experiment}.train'
    # -P: whatever the current folder holds stays off the import path.
    return [python, '-P', '-m', module, *self.flags, *more_flags]


def parser(launcher: str, description: str) -> argparse.ArgumentParser:
  """A parser of what all launchers take."""
  result = argparse.ArgumentParser(
    prog=f'python -m launch.{launcher}',
    description=description,
    epilog="All other flags are the trainer's own, such as --config.seed=1; "
    'python -m experiments.EXPERIMENT.train --help shows them.',
    allow_abbrev=False,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  result.add_argument('experiment', help=f'one of {", ".join(experiments())}')
  result.add_argument('--preset', help='which settings of its sweep.py')
  result.add_argument(
    '--sweep', help='several runs: which of the SWEEPS of its sweep.py'
  )
  result.add_argument(
    '--workdir',
    help='folder of the run, of all runs for a sweep (default: '
    'runs/EXPERIMENT-PRESET or runs/EXPERIMENT-SWEEP)',
  )
  result.add_argument(
    '--max_restarts',
    type=number('max_restarts', 0),
    default=3,
    help='crashes that a run may recover from (default: 3)',
  )
  result.add_argument(
    '--dry_run',
    action='store_true',
    help='print what would be run, exactly, and end',
  )
  return result


def parse(
  parser_: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> tuple[argparse.Namespace, list[Run]]:
  """The launcher's options, and the runs that are asked for.

  What is wrong ends the program with CONFIGURATION_ERROR and a sentence.
  """
  parser_.error = fail  # Its own would end with 2.
  options, flags = parser_.parse_known_args(arguments)
  for flag in flags:
    if not flag.startswith('--'):
      fail(f'every argument after the experiment is a flag; got {flag!r}')
  if options.experiment not in experiments():
    fail(
      f'there is no experiment {options.experiment!r}; there are: '
      f'{", ".join(experiments())}'
    )
  sweep_file = runpy.run_path(
    str(ROOT / 'experiments' / options.experiment / 'sweep.py')
  )
  _check_known('preset', options.preset, sweep_file['PRESETS'])
  _check_known('sweep', options.sweep, sweep_file['SWEEPS'])
  if not options.sweep:
    own = [
      f'--{name}={value}'
      for name in ('preset', 'workdir')
      if (value := getattr(options, name)) is not None
    ]
    return options, [Run(options.experiment, '', (*own, *flags))]
  if options.preset:
    fail('a sweep chooses the presets of its runs; leave out --preset')
  parent = options.workdir or f'runs/{options.experiment}-{options.sweep}'
  return options, [
    Run(
      options.experiment,
      name,
      (
        *(f'--{flag}={value}' for flag, value in chosen.items()),
        f'--workdir={parent}/{name}',
        *flags,
      ),
      f'{parent}/{name}',
    )
    for name, chosen in sweep_file['SWEEPS'][options.sweep].items()
  ]


def experiments() -> list[str]:
  """The experiments there are, by name."""
  pages = (ROOT / 'experiments').glob('*/train.py')
  return sorted(
    page.parent.name for page in pages if (page.parent / 'sweep.py').exists()
  )


def large_pages() -> list[str]:
  """NAME=VALUE that has glibc use large pages, unless the caller chose.

  Training on a CPU is up to a fifth faster with them. glibc reads it when a
  program starts; anything else ignores it.
  """
  name = 'GLIBC_TUNABLES'
  return [f'{name}={os.environ.get(name, "glibc.malloc.hugetlb=1")}']


def shell(command: Sequence[str]) -> str:
  """A command as it is typed."""
  return shlex.join(command)


def say(line: str) -> None:
  """Tells what the launcher does; the output of runs goes elsewhere."""
  print(f'launch: {line}', file=sys.stderr, flush=True)


def fail(message: str) -> NoReturn:
  """Ends the program: as it was called it cannot work."""
  say(message)
  sys.exit(CONFIGURATION_ERROR)


def number(name: str, least: int) -> Callable[[str], int]:
  """The type of a flag that takes a whole number of at least `least`."""

  def parse_number(text: str) -> int:
    if not text.isdigit() or int(text) < least:
      fail(f'--{name} takes a whole number of at least {least}; got {text!r}')
    return int(text)

  return parse_number


def _check_known(what: str, name: str | None, known: dict[str, Any]) -> None:
  if name is not None and name not in known:
    fail(f'there is no {what} {name!r}; there are: {", ".join(known)}')
