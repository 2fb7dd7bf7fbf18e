"""Times an unroll beside the original, its ports and LSTMs.

  launch/benchmark.sh unroll --sizes=nth_farthest --output=results.json

Measures a training step (the mean of the squared outputs, and its gradient with
respect to every parameter) and the forward pass alone. All contestants get the
same weights, inputs and cores, and those that are relational memories must give
the same outputs, loss and gradients before they are timed. `ratio` is a
contestant's time by that of the first, in each round: above 1 the first is
faster.
"""

import argparse
from collections.abc import Iterator
import contextlib
import dataclasses
import json
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.benchmarks import agreement
from experiments.benchmarks import contest
from experiments.benchmarks import machine
from experiments.benchmarks import options as flags
from experiments.benchmarks.contestants import command
from experiments.benchmarks.contestants import CONTESTANTS
from experiments.benchmarks.contestants import environment
from experiments.benchmarks.contestants import obstacle
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.sizes import SIZES

WHATS = ('train', 'forward')
_COLUMNS = (
  'train ms',
  'ratio',
  'forward ms',
  'ratio',
  'build s',
  'peak MB',
  'XLA MB',
  'differs',
)
_FRAMEWORKS = ('jax', 'tensorflow', 'torch')
_TRIAL_ROUNDS = 3  # between the variants of one contestant
_WIDTH = 150  # of the table, also where it is no terminal that it goes to


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size; prints a table for each as it is done."""
  arguments = sys.argv[1:] if arguments is None else arguments
  options = _parse(arguments)
  results: dict[str, Any] = {
    **machine.describe('experiments.benchmarks.unroll', arguments),
    'device': options.device,
    'precision': options.precision,
    'sizes': {},
  }
  console = Console(width=_WIDTH)
  for name in options.sizes:
    size = SIZES[name]
    on_gpu = size.gpu_batch if options.device == 'gpu' else None
    size = dataclasses.replace(
      size, batch=options.batch or on_gpu or size.batch
    )
    results['sizes'][name] = measured = measure(size, options)
    console.print(table(name, measured))
    if options.output:
      options.output.write_text(json.dumps(results, indent=1))


def measure(size: Size, options: argparse.Namespace) -> dict[str, Any]:
  """Builds, compares and times the contestants on one size."""
  entries: dict[str, dict[str, Any]] = {
    name: {} for name in options.contestants
  }
  workers: dict[str, contest.Worker] = {}
  with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
    expected = None
    for name, entry in entries.items():
      reason = obstacle(name, options.device, options.precision)
      if reason:
        entry['left_out'] = reason
        continue
      _say(f'{name} is building')
      try:
        worker = _fastest(
          name, size, options, pathlib.Path(folder), entry, stack
        )
        entry['build']['forward'] = worker.ask(
          options.limit, ask='build', what='forward'
        )
        if CONTESTANTS[name].compared:
          found = _results(name, worker, options, pathlib.Path(folder))
          expected = expected or found
          entry['difference'] = agreement.difference(found, expected)
          refusal = agreement.refusal(entry['difference'], options.precision)
          if refusal:
            worker.stop()
            raise contest.Failed(refusal)
      except contest.Failed as failed:
        entry['left_out'] = str(failed)
      else:
        workers[name] = worker
    del expected
    idle_share = _play(workers, entries, options)
  return {
    'size': dataclasses.asdict(size),
    'contestants': entries,
    'idle_share': idle_share,
  }


def _fastest(name, size, options, folder, entry, stack) -> contest.Worker:
  """Builds every variant and keeps the one with the fastest training step."""
  contestant = CONTESTANTS[name]
  variants = contestant.variants + (
    contestant.gpu_variants
    if options.device == 'gpu'
    else contestant.cpu_variants
  )
  arrays = folder / f'{contestant.worker}.npz'
  if not arrays.exists():
    agreement.write(arrays, size, contestant.worker)
  workers, facts = {}, {}
  entry['tried'] = tried = {}
  for variant in variants:
    worker = contest.Worker(
      command(name), environment(options.device, folder), machine.CHECKOUT
    )
    stack.callback(worker.stop)
    try:
      loaded = worker.ask(
        options.limit,
        ask='load',
        contestant=name,
        variant=variant,
        arguments=size.arguments(),
        arrays=str(arrays),
        cores=machine.cores(),
        device=options.device,
        precision=options.precision,
      )
      built = worker.ask(options.limit, ask='build', what='train')
      memory = worker.ask(options.limit, ask='memory', what='train', steps=2)
    except contest.Failed as failed:
      tried[variant] = str(failed)
      continue
    workers[variant] = worker
    facts[variant] = {
      'variant': variant,
      'about': loaded['about'],
      'build': {'train': built},
      'memory_bytes': memory['bytes'],
    }
  if len(workers) > 1:
    # In turns as well: what slows the machine down must not decide.
    played = contest.play(
      workers,
      'train',
      rounds=_TRIAL_ROUNDS,
      turn_seconds=options.turn_seconds,
      limit=options.limit,
    )
    tried.update(played.failures)
    for variant, seconds in played.seconds.items():
      tried[variant] = contest.step_time(seconds).median
    workers = {variant: workers[variant] for variant in played.seconds}
  if not workers:
    reasons = [f'{v}: {why}' if v else why for v, why in tried.items()]
    raise contest.Failed('; '.join(reasons))
  best = min(workers, key=lambda variant: tried.get(variant, 0.0))
  for variant, worker in workers.items():
    if variant != best:
      worker.stop()
  entry.update(facts[best])
  return workers[best]


def _results(name, worker, options, folder) -> dict[str, np.ndarray]:
  path = folder / 'results.npz'
  worker.ask(options.limit, ask='check', path=str(path))
  results = agreement.read(path, CONTESTANTS[name].worker)
  path.unlink()
  return results


def _play(workers, entries, options) -> float:
  """Fills in the times; returns the largest share of a core used while idle."""
  idle_share = 0.0
  for what in WHATS:
    _say(f'{what}: {options.rounds} rounds of {", ".join(workers)}')
    played = contest.play(
      workers,
      what,
      rounds=options.rounds,
      turn_seconds=options.turn_seconds,
      limit=options.limit,
    )
    idle_share = max(idle_share, played.idle_share)
    for name, seconds in played.seconds.items():
      entries[name].setdefault('seconds', {})[what] = seconds
    for name, reason in played.failures.items():
      entries[name]['left_out'] = reason
      workers.pop(name)
  return idle_share


def table(name: str, measured: dict[str, Any]) -> Table:
  """One size as a table; below it, who was left out and why."""
  size = Size(**measured['size'])
  entries = measured['contestants']
  timed = {n: e for n, e in entries.items() if 'left_out' not in e}
  result = Table(
    title=f'{name}: T={size.steps} B={size.batch}, {size.mem_slots} x '
    f'{size.slot_width}, {size.num_heads} heads, {size.mlp_layers} MLP layers, '
    f'{size.gate_style} gates, input {size.features}',
    caption='\n'.join(
      [
        'Medians (lowest to highest of the rounds). Idle contestants used '
        f'{measured["idle_share"]:.1%} of a core or less.',
        *(
          escape(f'{n}: {e["left_out"]}')
          for n, e in entries.items()
          if n not in timed
        ),
      ]
    ),
    caption_justify='left',
  )
  result.add_column('contestant', no_wrap=True)
  for column in _COLUMNS:
    result.add_column(column, justify='right', no_wrap=True)
  first = next(iter(timed.values()), None)
  for contestant, entry in timed.items():
    result.add_row(f'{contestant}\n{_about(entry)}', *_cells(entry, first))
  return result


def _cells(entry, first) -> Iterator[str]:
  """What goes below `_COLUMNS`."""
  for what in WHATS:
    seconds = entry['seconds'][what]
    time = contest.step_time(seconds)
    yield _spread(contest.Spread(*(1e3 * s for s in time)), '.1f')
    ratio = contest.ratio(seconds, first['seconds'][what])
    yield '' if entry is first else _spread(ratio, '.2f')
  train = entry['build']['train']
  yield f'{train["seconds"]:.1f}'
  memory, temporary = entry['memory_bytes'], train.get('temp_bytes')
  yield '' if memory is None else f'{memory / 1e6:.0f}'
  yield '' if temporary is None else f'{temporary / 1e6:.0f}'
  worst = max(entry.get('difference', {}).values(), default=0.0)
  yield f'{worst:.0e}' if worst else ''


def _about(entry) -> str:
  """'torch 2.13.0, step'."""
  about = entry['about']
  words = [f'{n} {about[n]}' for n in _FRAMEWORKS if n in about]
  return ', '.join([*words, entry['variant']] if entry['variant'] else words)


def _spread(spread: contest.Spread, form: str) -> str:
  low, high = format(spread.low, form), format(spread.high, form)
  return f'{spread.median:{form}}\n({low} to {high})'


def _say(line: str) -> None:
  print(f'unroll: {line}', file=sys.stderr, flush=True)


def _parse(arguments: list[str]) -> argparse.Namespace:
  parser = flags.parser(
    'unroll',
    'Times an unroll beside the original, its ports and LSTMs.',
    SIZES,
    ['nth_farthest'],
  )
  parser.add_argument(
    '--contestants',
    type=flags.some_of(CONTESTANTS),
    default=[name for name in CONTESTANTS if name != 'rmc_jax_remat'],
    help=f'of {", ".join(CONTESTANTS)} (default: all but rmc_jax_remat); the '
    'first is what ratios are to',
  )
  parser.add_argument(
    '--remat', action='store_true', help='let rmc_jax_remat take part as well'
  )
  parser.add_argument(
    '--batch', type=flags.positive, help='instead of the batch of the size'
  )
  parser.add_argument(
    '--precision',
    choices=agreement.TOLERANCE,
    default='float32',
    help="of the products' factors (default: float32)",
  )
  options = parser.parse_args(arguments)
  if options.remat and 'rmc_jax_remat' not in options.contestants:
    options.contestants = [*options.contestants, 'rmc_jax_remat']
  return options


if __name__ == '__main__':
  main()
