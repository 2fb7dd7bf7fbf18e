"""Times the training of agents, and the share of playing.

  launch/benchmark.sh agents --sizes=all --output=results.json

`training` plays and learns on all devices; `pipeline` only plays, with the same
agent. `ratio` is the time per step relative to playing: at 3, a third of the
time goes into playing.
"""

import argparse
import functools
from typing import Any

from experiments.benchmarks import report
from experiments.benchmarks import throughput
from experiments.box_world import sweep as box_world
from experiments.mini_pacman import sweep as mini_pacman

GAMES = {'box_world': box_world.PRESETS, 'mini_pacman': mini_pacman.PRESETS}
_LARGE = {'batch_size': 1024}
_BFLOAT16 = {'core': box_world.MEMORY | {'compute_dtype': 'bfloat16'}}
# Name -> the game, the preset and its changes.
SIZES = {
  'mini_pacman_lstm': ('mini_pacman', 'quick_lstm', {}),
  'mini_pacman': ('mini_pacman', 'quick', {}),
  'box_world': ('box_world', 'quick', {}),
  'box_world_paper': ('box_world', 'paper', {}),
  'box_world_paper_conv_lstm': ('box_world', 'paper_conv_lstm', {}),
  'box_world_paper_large': ('box_world', 'paper', _LARGE),
  'box_world_paper_large_bfloat16': ('box_world', 'paper', _LARGE | _BFLOAT16),
}


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  parser = report.make_parser('agents', __doc__, SIZES, 'mini_pacman_lstm')
  options = parser.parse_args(arguments)
  table = functools.partial(throughput.table, 'steps')
  report.run(parser, options, arguments, measure, table)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
  """Times playing and training of a size."""
  game, preset, changes = SIZES[name]
  request = {'game': game, 'preset': GAMES[game][preset] | changes}
  return throughput.measure_with_pipeline('agent', request, options)


if __name__ == '__main__':
  main()
