"""Times random play of the games, resets and observations included.

  launch/benchmark.sh environments --sizes=all --output=results.json

`rmc_jax 1024` plays 1024 games in one program for all devices, with automatic
resets, and keeps all observations, as a rollout for training does; BoxWorld
starts from a bank of 4096 levels. Games of gymnax, and the adapter to it, are
played by the same program, without a bank. The other adapters take a step in a
call; of these only VectorEnv has the bank. The reference of the tests in plain
Python repeats recorded moves, without resets and observations. `ratio` is the
time per step relative to the first row.
"""

import argparse
import functools
from typing import Any

from experiments.benchmarks import report
from experiments.benchmarks import throughput

_GAMES = {
  f'rmc_jax {count}': {'program': 'rollout', 'games': count}
  for count in (1024, 1, 16, 128, 8192)
}
_OTHERS = {
  'VectorEnv 64': {'program': 'vector_env', 'games': 64},
  'gymnasium.Env': {'program': 'gymnasium'},
  'dm_env': {'program': 'dm_env'},
  'gymnax adapter 1024': {'program': 'gymnax', 'games': 1024},
  'gymnax Breakout 1024': {
    'program': 'gymnax',
    'games': 1024,
    'name': 'Breakout-MinAtar',
  },
  'gymnax Asterix 1024': {
    'program': 'gymnax',
    'games': 1024,
    'name': 'Asterix-MinAtar',
  },
  'reference': {'program': 'reference'},
}
_NO_BANK = {
  'levels drawn 1024': {'program': 'rollout', 'games': 1024, 'num_levels': 0}
}
_PACMAN = {'name': 'mini_pacman', 'num_levels': 0}
_BOX_WORLD = {'name': 'box_world', 'num_levels': 4096}
# Name -> the game, and implementations.
SIZES: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
  'mini_pacman': (_PACMAN, _GAMES | _OTHERS),
  'box_world': (_BOX_WORLD, _GAMES | _NO_BANK | _OTHERS),
}
for _game in (_PACMAN, _BOX_WORLD):
  for _label, _changes in {
    'symbolic': {'pixels': 'symbolic'},
    'full': {'view': 'full'},
    'full_symbolic': {'pixels': 'symbolic', 'view': 'full'},
    'blind': {'observes': False},
  }.items():
    SIZES[f'{_game["name"]}_{_label}'] = _game | _changes, _GAMES


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  parser = report.make_parser('environments', __doc__, SIZES, 'mini_pacman')
  table = functools.partial(throughput.table, 'steps')
  report.run(parser, parser.parse_args(arguments), arguments, measure, table)


def measure(size: str, options: argparse.Namespace) -> dict[str, Any]:
  """Times the implementations of a size."""
  game, implementations = SIZES[size]
  workers = {
    label: ('environments_worker', {**game, **request})
    for label, request in implementations.items()
  }
  return throughput.measure(workers, options)


if __name__ == '__main__':
  main()
