"""Turns a launcher's arguments into the command lines of its runs.

Launchers run with any Python 3.11, before any package is installed. They
import nothing from the project and read what they share with it from its files.
"""

import argparse
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import os
import pathlib
import re
import runpy
import sys
from typing import NamedTuple
from typing import NoReturn

ROOT = pathlib.Path(__file__).resolve().parent.parent
_ERRORS = runpy.run_path(str(ROOT / 'rmc_jax/errors.py'))
DONE = _ERRORS['DONE']
PREEMPTED: int = _ERRORS['PREEMPTED']
DIVERGED = _ERRORS['DIVERGED']
CONFIGURATION_ERROR = _ERRORS['CONFIGURATION_ERROR']
# Restarting after one of these would change nothing.
FINAL = (DONE, DIVERGED, CONFIGURATION_ERROR)
# Where machines may start one after another. A flag of the user's follows it,
# and the last one counts.
LONG_INITIALIZATION_TIMEOUT = '--initialization_timeout=3600'


class Run(NamedTuple):
  """One training run; all processes of a distributed run share it."""

  experiment: str  # a folder of experiments/
  name: str  # within its sweep; '' without a sweep
  flags: tuple[str, ...]  # the trainer's
  workdir: str  # the trainer's default if it is not among the flags

  def command(self, python: str, *more_flags: str) -> list[str]:
    """Returns the trainer's command line, which needs ROOT on PYTHONPATH."""
    module = f'experiments.{self.experiment}.train'
    # -P keeps the current folder off the import path.
    return [python, '-P', '-m', module, *self.flags, *more_flags]


class Parser(argparse.ArgumentParser):
  """A parser with the arguments of all launchers; `launcher` is a module."""

  def __init__(self, launcher: str, description: str | None):
    super().__init__(
      prog=f'python -m launch.{launcher}',
      description=description,
      epilog='Other flags go to the trainer; to list them: '
      'python -m experiments.EXPERIMENT.train --help',
      allow_abbrev=False,
      formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, names = self.add_argument, experiments()
    known = f'one of {", ".join(names)}'
    add('experiment', choices=names, metavar='experiment', help=known)
    add('--preset', help="a preset of the experiment's sweep.py")
    add('--sweep', help="a sweep of the experiment's sweep.py: several runs")
    add(
      '--workdir',
      help='folder of the run, or of all runs of a sweep (default: '
      'runs/EXPERIMENT-PRESET or runs/EXPERIMENT-SWEEP)',
    )
    self.add_integer(
      '--max_restarts',
      'restarts of a run after crashes (default: 3)',
      minimum=0,
      default=3,
    )
    add('--dry_run', action='store_true', help='print the commands and exit')

  def add_env(self) -> None:
    """Adds --env."""
    self.add_pairs(
      '--env', '[A-Za-z_][A-Za-z0-9_]*', 'NAME=VALUE', 'variable of the run'
    )

  def add_integer(
    self, flag: str, help: str, *, minimum: int = 1, default: int | None = None
  ) -> None:
    """Adds a flag that takes an integer >= minimum."""

    def convert(text: str) -> int:
      if not text.isdigit() or int(text) < minimum:
        raise argparse.ArgumentTypeError(
          f'expected an integer of at least {minimum}, got {text!r}'
        )
      return int(text)

    self.add_argument(flag, type=convert, default=default, help=help)

  def add_pairs(self, flag: str, key: str, form: str, help: str) -> None:
    """Adds a repeatable flag of the `form` KEY=VALUE, with a regex for KEY."""
    check = matching(f'{key}=.*', form)
    self.add_argument(
      flag,
      type=lambda text: tuple(check(text).split('=', 1)),
      action='append',
      default=[],
      metavar=form,
      help=f'{help}; repeatable',
    )

  def error(self, message: str) -> NoReturn:
    """Exits with CONFIGURATION_ERROR; argparse would exit with 2."""
    fail(message)


def parse(
  parser: Parser, arguments: Sequence[str] | None
) -> tuple[argparse.Namespace, list[Run]]:
  """Returns the launcher's options and the requested runs.

  Exits with CONFIGURATION_ERROR and a message if an argument is invalid.
  """
  options, flags = parser.parse_known_args(arguments)
  if options.workdir:
    # In a bucket, a slash at the end would be part of the names.
    options.workdir = options.workdir.rstrip('/') or '/'
    if '://' in options.workdir and not in_bucket(options.workdir):
      fail(
        f'--workdir={options.workdir} must be a folder, gs://BUCKET/RUN or '
        's3://BUCKET/RUN'
      )
  for flag in flags:
    if not flag.startswith('--'):
      fail(f'unexpected argument {flag!r}; flags start with --')
  page = ROOT / 'experiments' / options.experiment / 'sweep.py'
  sweep_file = runpy.run_path(str(page))
  if not options.sweep:
    shared = []
    if options.preset is not None:
      _check_choice('--preset', options.preset, sweep_file['PRESETS'])
      shared.append(f'--preset={options.preset}')
    if options.workdir is not None:
      shared.append(f'--workdir={options.workdir}')
    default = f'runs/{options.experiment}-{options.preset or "quick"}'
    workdir = options.workdir or default
    return options, [Run(options.experiment, '', (*shared, *flags), workdir)]
  _check_choice('--sweep', options.sweep, sweep_file['SWEEPS'])
  if options.preset:
    fail(
      f'--preset={options.preset} conflicts with --sweep, which sets the '
      'preset of each run; remove one of them'
    )
  parent = options.workdir or f'runs/{options.experiment}-{options.sweep}'
  runs = []
  for name, settings in sweep_file['SWEEPS'][options.sweep].items():
    workdir = f'{parent}/{name}'
    own = [f'--{flag}={value}' for flag, value in settings.items()]
    own.append(f'--workdir={workdir}')
    runs.append(Run(options.experiment, name, (*own, *flags), workdir))
  return options, runs


def matching(pattern: str, expected: str) -> Callable[[str], str]:
  """Returns the type of a flag whose text matches `pattern`."""

  def convert(text: str) -> str:
    if not re.fullmatch(pattern, text):
      raise argparse.ArgumentTypeError(f'expected {expected}, got {text!r}')
    return text

  return convert


def in_bucket(workdir: str | None) -> bool:
  """Returns whether the trainer writes to a bucket, not to a folder."""
  return bool(workdir) and workdir.startswith(('gs://', 's3://'))


def experiments() -> list[str]:
  """Returns the names of the experiments."""
  return sorted(
    path.parent.name
    for path in (ROOT / 'experiments').glob('*/train.py')
    if (path.parent / 'sweep.py').exists()
  )


def rank_flags(coordinator: str, processes: int, rank: int | str) -> list[str]:
  """Returns the trainer's flags for one of several processes."""
  return [
    f'--coordinator_address={coordinator}',
    f'--num_processes={processes}',
    f'--process_id={rank}',
  ]


def large_pages() -> str:
  """Returns the NAME=VALUE that makes glibc use large pages.

  They make training on a CPU up to a fifth faster. A value that the user has
  set is kept.
  """
  name = 'GLIBC_TUNABLES'
  return f'{name}={os.environ.get(name, "glibc.malloc.hugetlb=1")}'


def log(line: str) -> None:
  """Prints a message of the launcher to the standard error."""
  print(f'launch: {line}', file=sys.stderr, flush=True)


def fail(message: str) -> NoReturn:
  """Exits with CONFIGURATION_ERROR and a message."""
  log(message)
  sys.exit(CONFIGURATION_ERROR)


def _check_choice(flag: str, value: str, choices: Collection[str]) -> None:
  if value not in choices:
    known = ', '.join(choices)
    fail(f'argument {flag}: unknown {value!r}; choose from {known}')
