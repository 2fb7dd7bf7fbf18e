"""Times whole training, data included, beside the authors' script.

  launch/benchmark.sh train --sizes=quick,paper --output=results.json

Nth Farthest: ours as experiments/nth_farthest/train.py trains it, theirs as the
script and the dataset of dm-sonnet 1.36 do on TensorFlow, in the environment
that `launch/parity.sh --setup-only` makes. Both train the same core and
read-out, on batches of one size, with Adam at the script's rates; both number
the vectors from the nearest, as the authors' dataset does. Neither evaluates,
logs or saves in the time measured. `ratio` is a side's time by ours, in each
round: above 1 we are faster.
"""

import argparse
import json
import sys
import tempfile
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments import command_line
from experiments.benchmarks import contest
from experiments.benchmarks import contestants
from experiments.benchmarks import machine
from experiments.benchmarks import options as options_lib
from experiments.nth_farthest import sweep

# Preset -> updates in a step: enough for a call to cost nothing beside them.
UPDATES = {'quick': 20, 'paper': 1}
# Side -> the framework of its environment, and its program.
SIDES = {
  'rmc_jax': ('jax', 'train_worker'),
  'authors': ('sonnet', 'sonnet_train_worker'),
}
_COLUMNS = ('examples/s', 'update ms', 'ratio', 'build s', 'peak MB')


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  arguments = sys.argv[1:] if arguments is None else arguments
  parser = options_lib.parser(
    'train', str(__doc__).partition('\n')[0], UPDATES, ['quick']
  )
  parser.add_argument(
    '--updates',
    type=options_lib.positive,
    help='in one step of a turn (default: 20, for paper 1)',
  )
  options = parser.parse_args(arguments)
  results: dict[str, Any] = {
    **machine.describe('experiments.benchmarks.train', arguments),
    'device': options.device,
    'sizes': {},
  }
  console = Console(width=100)
  for name in options.sizes:
    preset = settings(name, options.updates or UPDATES[name])
    results['sizes'][name] = measured = measure(preset, options)
    console.print(table(name, measured))
    if options.output:
      options.output.write_text(json.dumps(results, indent=1))


def settings(name: str, updates: int) -> dict[str, Any]:
  """A preset of ours, with the order and the optimiser of the script."""
  theirs = {key: sweep.AUTHORS[key] for key in ('order', 'optimizer')}
  return sweep.PRESETS[name] | theirs | {'updates_per_call': updates}


def measure(
  preset: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
  """Builds both sides and times them in turn.

  Raises:
    contest.Failed: ours fails, or the two do not train the same model.
  """
  sides: dict[str, dict[str, Any]] = {side: {} for side in SIDES}
  workers: dict[str, contest.Worker] = {}
  with tempfile.TemporaryDirectory() as folder:
    environment = contestants.environment(options.device, folder)
    # As the command line of the experiment divides the CPU.
    devices = str(command_line.default_cpu_devices())
    environment['JAX_NUM_CPU_DEVICES'] = devices
    try:
      for side, (framework, program) in SIDES.items():
        print(f'train: {side} is building', file=sys.stderr, flush=True)
        try:
          workers[side] = worker = contest.Worker(
            contestants.program(framework, program),
            environment,
            machine.CHECKOUT,
          )
          sides[side] = _build(worker, preset, options)
        except (contest.Failed, FileNotFoundError) as failed:
          if side == 'rmc_jax':
            raise
          workers.pop(side, None)
          sides[side] = {'left_out': str(failed)}
      check_same(sides)
      played = contest.play(
        workers,
        'train',
        rounds=options.rounds,
        turn_seconds=options.turn_seconds,
        limit=options.limit,
      )
    finally:
      for worker in workers.values():
        worker.stop()
  for side, reason in played.failures.items():
    sides[side] = {'left_out': reason}
  for side, seconds in played.seconds.items():
    sides[side]['seconds'] = seconds
  return {'preset': preset, 'sides': sides, 'idle_share': played.idle_share}


def _build(worker, preset, options) -> dict[str, Any]:
  def ask(question, **more):
    return worker.ask(options.limit, ask=question, what='train', **more)

  return {
    **ask('load', preset=preset),
    'build': ask('build'),
    'memory_bytes': ask('memory', steps=1)['bytes'],
  }


def check_same(sides: dict[str, dict[str, Any]]) -> None:
  """Raises Failed unless all sides have as many parameters."""
  sizes = {
    side: each['about']['parameters']
    for side, each in sides.items()
    if 'left_out' not in each
  }
  if len(set(sizes.values())) != 1:
    raise contest.Failed(f'The sides train different models: {sizes}.')


def table(name: str, measured: dict[str, Any]) -> Table:
  """Examples a second of both sides, and the ratio."""
  preset, sides = measured['preset'], measured['sides']
  updates = preset['updates_per_call']
  reasons = [
    f'{side}: {each["left_out"]}'
    for side, each in sides.items()
    if 'left_out' in each
  ]
  shown = Table(
    title=f'{name}: batch {preset["batch_size"]}, {preset["num_objects"]} '
    f'vectors of {preset["num_features"]}',
    caption='\n'.join(
      [
        'Medians (lowest to highest of the rounds). The idle side used '
        f'{measured["idle_share"]:.1%} of a core or less.',
        *reasons,
      ]
    ),
    caption_justify='left',
  )
  shown.add_column('side')
  for column in _COLUMNS:
    shown.add_column(column, justify='right')
  ours = sides['rmc_jax'].get('seconds')
  for side, each in sides.items():
    if 'seconds' not in each:
      continue
    update = contest.step_time(each['seconds']).scaled(1 / updates)
    memory = each['memory_bytes']
    ratio = contest.ratio(each['seconds'], ours).text('.2f') if ours else ''
    shown.add_row(
      side,
      f'{preset["batch_size"] / update.median:,.0f}',
      update.scaled(1e3).text('.1f'),
      '' if side == 'rmc_jax' else ratio,
      f'{each["build"]["seconds"]:.1f}',
      '' if memory is None else f'{memory / 1e6:.0f}',
    )
  return shown


if __name__ == '__main__':
  main()
