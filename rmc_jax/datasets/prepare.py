"""Prepares a corpus: `python -m rmc_jax.datasets.prepare NAME`.

Prints a summary of the corpus. Exits with 0; with 77 if the files, the names or
the licence do not allow it; with 130 if interrupted.
"""

import argparse
from collections.abc import Sequence
import sys

from rmc_jax.datasets import load


def main(arguments: Sequence[str] | None = None) -> int:
  """Prepares one corpus; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m rmc_jax.datasets.prepare',
    description='Makes a text corpus, or bAbI, ready for training.',
  )
  add = parser.add_argument
  add('name', metavar='NAME', help=', '.join(load.NAMES))
  add(
    '--data_dir',
    default='data',
    help='where prepared corpora are kept (default: data)',
  )
  add('--manual_dir', help='the folder with your own copy of the corpus')
  add(
    '--download',
    action=argparse.BooleanOptionalAction,
    default=True,
    help='download what the licence allows (default: yes)',
  )
  options = parser.parse_args(arguments)
  try:
    load.prepare(**vars(options))
    summary = load.summary(options.name, data_dir=options.data_dir)
  except load.DatasetError as error:
    sys.stderr.write(f'prepare: {error}\n')
    return error.exit_code
  except KeyboardInterrupt:
    sys.stderr.write('prepare: interrupted; no partial corpus is left.\n')
    return 130
  sys.stdout.write(f'{summary}\n')
  return 0


if __name__ == '__main__':
  sys.exit(main())
