"""Compares a training step with what the device could do.

  launch/benchmark.sh roofline --sizes=all --output=results.json

In one run: the step of `rmc_jax.unroll`, as the benchmark `unroll` times it;
the rates of one large matrix product and of a pass over memory; and the Linears
of the step alone, in its loops and shapes, with nothing between them. The bound
is that of the schedule in counts.py: each phase takes as long as its operations
at the rate of the large product, or its bytes at the rate of the memory,
whichever is longer, and one phase begins when another ends. The weights of a
loop come at the rate that a pass over so many bytes has: that of a cache, if
there is one that holds them. `share` is the bound by the step's time, in each
round.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import sys
import tempfile
from typing import Any
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from experiments.benchmarks import agreement
from experiments.benchmarks import contest
from experiments.benchmarks import contestants
from experiments.benchmarks import counts
from experiments.benchmarks import machine
from experiments.benchmarks import options as options_lib
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.sizes import SIZES

_COPIED = 1 << 29  # bytes, more than caches hold
_COLUMNS = ('GFLOP', 'MB', 'ms of operations', 'ms of bytes', 'bound ms')


class Rates(NamedTuple):
  """What the device reached: operations or bytes a second.

  Attributes:
    product: of the large product.
    copy: of a pass over more than caches hold.
    weights: of a pass over as much as the weights of the loop.
  """

  product: float
  copy: float
  weights: float


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  arguments = sys.argv[1:] if arguments is None else arguments
  parser = options_lib.parser(
    'roofline', str(__doc__).partition('\n')[0], SIZES, ['nth_farthest']
  )
  parser.add_argument(
    '--precision',
    choices=agreement.TOLERANCE,
    default='float32',
    help="of the products' factors (default: float32)",
  )
  options = parser.parse_args(arguments)
  results: dict[str, Any] = {
    **machine.describe('experiments.benchmarks.roofline', arguments),
    'device': options.device,
    'precision': options.precision,
    'sizes': {},
  }
  console = Console(width=100)
  for name in options.sizes:
    size = SIZES[name]
    if options.device == 'gpu' and size.gpu_batch:
      size = dataclasses.replace(size, batch=size.gpu_batch)
    results['sizes'][name] = measured = measure(size, options)
    console.print(table(name, measured))
    if options.output:
      options.output.write_text(json.dumps(results, indent=1))


def measure(size: Size, options: argparse.Namespace) -> dict[str, Any]:
  """Times the step and the peaks in turn, and compares them.

  Raises:
    contest.Failed: one of them fails.
  """
  itemsize = 2 if options.precision == 'bfloat16' else 4
  phases = counts.training_step(size, itemsize)
  weight_bytes = max(phase.weight_bytes for phase in phases if phase.passes > 1)
  peaks = {
    'product': {},
    'copy': {'bytes': _COPIED},
    'weights': {'peak': 'copy', 'bytes': weight_bytes},
    'linears': {'size': dataclasses.asdict(size)},
  }
  workers: dict[str, contest.Worker] = {}
  about, facts = {}, {}
  with tempfile.TemporaryDirectory() as folder:
    try:
      for name in ('rmc_jax', *peaks):
        worker = 'jax_worker' if name == 'rmc_jax' else 'peaks_worker'
        workers[name] = contest.Worker(
          contestants.program('jax', worker),
          contestants.environment(options.device, folder),
          machine.CHECKOUT,
        )
        if name == 'rmc_jax':
          arrays = pathlib.Path(folder, 'arrays.npz')
          agreement.write(arrays, size, 'jax')
          request = {
            'contestant': name,
            'arguments': size.arguments(),
            'arrays': str(arrays),
          }
        else:
          request = {'peak': name} | peaks[name]
        loaded = workers[name].ask(
          options.limit,
          ask='load',
          device=options.device,
          precision=options.precision,
          **request,
        )
        about[name] = loaded['about']
        facts[name] = workers[name].ask(
          options.limit, ask='build', what='train'
        )
      print(f'roofline: {options.rounds} rounds', file=sys.stderr, flush=True)
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
  for name, reason in played.failures.items():
    raise contest.Failed(f'{name}: {reason}')
  return {
    'size': dataclasses.asdict(size),
    'itemsize': itemsize,
    'about': about['rmc_jax'],
    'facts': facts,
    'seconds': played.seconds,
    'idle_share': played.idle_share,
  }


def bound(phase: counts.Phase, rates: Rates) -> tuple[float, float]:
  """Seconds that the operations, and that the bytes, take at these rates."""
  weights = phase.passes * phase.weight_bytes
  return (
    phase.operations / rates.product,
    phase.bytes / rates.copy + weights / rates.weights,
  )


def table(name: str, measured: dict[str, Any]) -> Table:
  """The phases, and below them the rates and the share reached."""
  size = Size(**measured['size'])
  phases = counts.training_step(size, measured['itemsize'])
  rounds = [_rates(measured, index) for index in range(_rounds(measured))]
  rates = Rates(*map(statistics.median, zip(*rounds, strict=True)))
  seconds = measured['seconds']
  bounds = [sum(max(bound(phase, each)) for phase in phases) for each in rounds]
  step = [statistics.median(turn) for turn in seconds['rmc_jax']]
  shares = contest.spread([b / s for b, s in zip(bounds, step, strict=True)])
  alone = contest.step_time(seconds['linears'])
  linears = measured['facts']['linears']['operations']
  shown = Table(
    title=f'{name}: T={size.steps} B={size.batch}, {size.mem_slots} x '
    f'{size.slot_width}, one training step',
    caption='\n'.join(
      [
        f'Product {rates.product / 1e9:,.0f} GFLOP/s, copy '
        f"{rates.copy / 1e9:,.1f} GB/s, at the size of the loop's weights "
        f'{rates.weights / 1e9:,.1f} GB/s; medians.',
        f'Linears alone: {_text(alone.scaled(1e3), ".1f")} ms, '
        f'{linears / alone.median / 1e9:,.0f} GFLOP/s.',
        f'Bound: {_text(contest.spread(bounds).scaled(1e3), ".1f")} ms.',
        f'Step: {_text(contest.spread(step).scaled(1e3), ".1f")} ms. '
        f'Share: {_text(shares, ".0%")}.',
      ]
    ),
    caption_justify='left',
  )
  shown.add_column('phase')
  for column in _COLUMNS:
    shown.add_column(column, justify='right')
  for phase in phases:
    operations, moved = bound(phase, rates)
    shown.add_row(
      phase.name,
      f'{phase.operations / 1e9:.2f}',
      f'{phase.all_bytes / 1e6:,.0f}',
      f'{1e3 * operations:.2f}',
      f'{1e3 * moved:.2f}',
      f'{1e3 * max(operations, moved):.2f}',
    )
  return shown


def _rounds(measured: dict[str, Any]) -> int:
  return len(measured['seconds']['rmc_jax'])


def _rates(measured: dict[str, Any], index: int) -> Rates:
  """Those of one round."""

  def rate(name, fact):
    turn = measured['seconds'][name][index]
    return measured['facts'][name][fact] / statistics.median(turn)

  return Rates(
    rate('product', 'operations'),
    rate('copy', 'bytes'),
    rate('weights', 'bytes'),
  )


def _text(spread: contest.Spread, form: str) -> str:
  return spread.text(form).replace('\n', ' ')


if __name__ == '__main__':
  main()
