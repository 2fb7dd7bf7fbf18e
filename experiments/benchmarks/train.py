"""Times whole training, data included, against the authors' script.

  launch/benchmark.sh train --sizes=quick,paper --output=results.json

Nth Farthest: `rmc_jax` as experiments/nth_farthest/train.py trains it,
`authors` as the script and dataset of dm-sonnet 1.36 do on TensorFlow, in the
environment of `launch/parity.sh --setup-only`. Both train the same core and
read-out on batches of the same size, with Adam at the script's rates and the
vectors numbered from the nearest. Evaluation, logs and checkpoints are not
timed. `ratio` is the time relative to rmc_jax in each trial: above 1 rmc_jax is
faster.
"""

import argparse
from typing import Any

from rich.table import Table

from experiments.benchmarks import report
from experiments.benchmarks import throughput
from experiments.nth_farthest import sweep

# Preset -> updates in a step: enough to make the cost of a call negligible.
UPDATES = {'quick': 20, 'paper': 1}


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  parser = report.make_parser('train', __doc__, UPDATES, 'quick')
  updates = 'in one step of a trial; None is 20, or 1 for paper'
  parser.add_argument('--updates', type=report.positive, help=updates)
  options = parser.parse_args(arguments)
  report.run(parser, options, arguments, measure, table)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
  """Times our training and that of the authors' script."""
  preset = settings(name, options.updates or UPDATES[name])
  request = {'program': 'nth_farthest', 'preset': preset}
  workers = {
    'rmc_jax': ('training_worker', request),
    'authors': ('sonnet_train_worker', request),
  }
  return throughput.measure(workers, options) | {'preset': preset}


def settings(name: str, updates: int) -> dict[str, Any]:
  """Returns a preset with the order and the optimiser of the script."""
  changes = {key: sweep.AUTHORS[key] for key in ('order', 'optimizer')}
  changes['run'] = {'updates_per_call': updates}
  return sweep.PRESETS[name] | changes


def table(name: str, measured: dict[str, Any]) -> Table:
  """Makes a table of both."""
  title = '{}: batch {batch_size}, {num_objects} vectors of {num_features}'
  title = title.format(name, **measured['preset'])
  return throughput.table('examples', title, measured)


if __name__ == '__main__':
  main()
