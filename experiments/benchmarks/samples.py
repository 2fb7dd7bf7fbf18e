"""Times how fast samples are made, beside how fast training uses them.

  launch/benchmark.sh samples --sizes=all --output=results.json

Program evaluation and memorization, whose samples are made inside the training
step. One turn makes batches and does nothing else, on one device; the next one
trains, on all devices, data included. `ratio` is samples made by samples used,
in each round: at 10 a tenth of the training goes into its data at most.
"""

import json
import sys
from typing import Any

import jax
from rich.console import Console

from experiments import command_line
from experiments import configuration
from experiments.benchmarks import machine
from experiments.benchmarks import supply
from experiments.learn_to_execute import sweep
from experiments.learn_to_execute import train
from rmc_jax.tasks.learn_to_execute import sample
from rmc_jax.training import parallel

# Name -> the preset, and what it is changed to.
SIZES = {
  'addition': ('quick', {}),
  'reverse': ('quick_reverse', {}),
  'reverse_lstm': ('quick_reverse_lstm', {}),
  'reverse_entnet': ('quick_reverse_entnet', {}),
  'reverse_dnc': ('quick_reverse_dnc', {}),
  'program': ('quick', {'task': 'program', 'max_length': 5, 'max_nesting': 2}),
  'program_entnet': (
    'quick_reverse_entnet',
    {'task': 'program', 'max_length': 5, 'max_nesting': 2},
  ),
  'program_paper': ('program_rmc_4_slots_4_heads_1024', {}),
  'program_hard_paper': ('program_hard_rmc_4_slots_4_heads_1024', {}),
}


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a row for each."""
  arguments = sys.argv[1:] if arguments is None else arguments
  parser = supply.make_parser('samples', str(__doc__), SIZES, 'reverse_entnet')
  options = parser.parse_args(arguments)
  # As the command line of the experiments divides the CPU.
  jax.config.update('jax_num_cpu_devices', command_line.default_cpu_devices())
  results: dict[str, Any] = {
    **machine.describe('experiments.benchmarks.samples', arguments),
    'sizes': {},
  }
  for name in options.sizes:
    print(f'samples: {name} is building', file=sys.stderr, flush=True)
    results['sizes'][name] = measure(
      config_of(name), options.rounds, options.turn_seconds
    )
    if options.output:
      options.output.write_text(json.dumps(results, indent=1))
  Console(width=100).print(supply.table('samples', results['sizes']))


def config_of(name: str) -> train.Config:
  """The configuration of a size."""
  preset, changes = SIZES[name]
  presets = {preset: sweep.PRESETS[preset] | changes}
  return configuration.with_preset(train.Config, presets, preset)


def measure(
  config: train.Config, rounds: int, turn_seconds: float
) -> dict[str, list[float]]:
  """Samples a second, made and used, a number for each round."""
  task, curriculum = train.make_task(config), train.make_curriculum(config)
  curriculum_state = curriculum.initial_state()

  def one(key):
    difficulty_key, sample_key = jax.random.split(key)
    difficulty = curriculum.sample_difficulty(curriculum_state, difficulty_key)
    return sample(sample_key, task, difficulty)

  make_batch = jax.jit(
    lambda key: jax.vmap(one)(jax.random.split(key, config.batch_size))
  )
  functions = train.make_functions(config)
  state = parallel.place_state(functions.init())
  keys = iter(range(sys.maxsize))

  def make():
    jax.block_until_ready(make_batch(jax.random.key(next(keys))))
    return config.batch_size

  def use():
    nonlocal state
    state, metrics = functions.update(state)
    jax.block_until_ready(metrics)
    return config.batch_size * config.updates_per_call

  return supply.take_turns(make, use, rounds, turn_seconds)


if __name__ == '__main__':
  main()
