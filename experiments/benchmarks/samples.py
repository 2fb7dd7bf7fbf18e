"""Times the generation of samples against the training that consumes them.

  launch/benchmark.sh samples --sizes=all --output=results.json

Program evaluation and memorization, whose samples are generated inside the
training step. `pipeline` generates batches on one device and does nothing else;
`training` trains on all devices, data included. `ratio` is the time per sample
relative to the pipeline, in each trial: at 10 at most a tenth of the training
time goes into its data.
"""

import argparse
import functools
from typing import Any

from experiments.benchmarks import report
from experiments.benchmarks import throughput
from experiments.learn_to_execute import sweep

_SHORT_PROGRAM = {'task': 'program', 'max_length': 5, 'max_nesting': 2}

# Name -> the preset and its changes.
SIZES = {
  'addition': ('quick', {}),
  'reverse': ('quick_reverse', {}),
  'reverse_lstm': ('quick_reverse_lstm', {}),
  'reverse_entnet': ('quick_reverse_entnet', {}),
  'reverse_dnc': ('quick_reverse_dnc', {}),
  'program': ('quick', _SHORT_PROGRAM),
  'program_entnet': ('quick_reverse_entnet', _SHORT_PROGRAM),
  'program_paper': ('program_rmc_4_slots_4_heads_1024', {}),
  'program_hard_paper': ('program_hard_rmc_4_slots_4_heads_1024', {}),
}


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  # The default trains fastest, so it needs the most data.
  parser = report.make_parser('samples', __doc__, SIZES, 'reverse_entnet')
  options = parser.parse_args(arguments)
  table = functools.partial(throughput.table, 'samples')
  report.run(parser, options, arguments, measure, table)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
  """Times the pipeline and the training of a size."""
  preset, changes = SIZES[name]
  request = {'preset': sweep.PRESETS[preset] | changes}
  return throughput.measure_with_pipeline('samples', request, options)


if __name__ == '__main__':
  main()
