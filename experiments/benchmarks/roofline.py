"""Compares a training step with what the device could do.

  launch/benchmark.sh roofline --sizes=all --output=results.json

Measures in one run the step of `rmc_jax.unroll` as the benchmark `unroll` does;
the rates of one large matrix product and of a pass over memory; and the Linears
of the step alone, in their loops and shapes. The bound is that of the schedule
in counts.py: each phase takes as long as its operations at the rate of the
large product, or its bytes at the rate of the memory, whichever is longer, and
one phase begins when another ends. The weights of a loop are read at the rate
of a pass over as many bytes: that of a cache, if they fit in one. `share` is
the bound divided by the time of the step, in each trial.
"""

import argparse
import dataclasses
import statistics
from typing import Any
from typing import NamedTuple

from rich.table import Table

from experiments.benchmarks import agreement
from experiments.benchmarks import counts
from experiments.benchmarks import harness
from experiments.benchmarks import report
from experiments.benchmarks.report import Spread
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.sizes import SIZES

_COPIED = 1 << 29  # bytes, more than caches hold


class Rates(NamedTuple):
  """Operations or bytes per second that the device reached."""

  product: float  # one large product
  copy: float  # a pass over more than caches hold
  weights: float  # a pass over as many bytes as the weights of the loop


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  parser = report.make_parser('roofline', __doc__, SIZES, 'nth_farthest')
  report.add_precision(parser)
  report.run(parser, parser.parse_args(arguments), arguments, measure, table)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
  """Times the step and the peaks."""
  size, precision = SIZES[name].on(options.device), options.precision
  settings = dataclasses.asdict(size)
  itemsize = 2 if precision == 'bfloat16' else 4
  loop = counts.phases(size, itemsize)[1]
  with harness.Session(options) as session:
    arrays = session.folder / 'arrays.npz'
    agreement.write(arrays, size)
    requests = {
      'rmc_jax': {'arguments': size.arguments(), 'arrays': str(arrays)},
      'product': {'peak': 'product'},
      'copy': {'peak': 'copy', 'bytes': _COPIED},
      'weights': {'peak': 'copy', 'bytes': loop.weight_bytes},
      'linears': {'peak': 'linears', 'size': settings},
    }
    for each, request in requests.items():
      worker = 'jax_worker' if each == 'rmc_jax' else 'peaks_worker'
      request |= {'name': each, 'precision': precision}
      session.add(each, worker, request, required=True)
    session.time()
    return session.result(size=settings, itemsize=itemsize, precision=precision)


def bound(phase: counts.Phase, rates: Rates) -> tuple[float, float]:
  """Returns the seconds of the operations and those of the bytes."""
  weights = phase.passes * phase.weight_bytes
  return (
    phase.operations / rates.product,
    phase.bytes / rates.copy + weights / rates.weights,
  )


def trial_rates(measured: dict[str, Any]) -> list[Rates]:
  """Returns the rates of each trial."""
  rates = []
  for name, fact in zip(
    Rates._fields, ('operations', 'bytes', 'bytes'), strict=True
  ):
    entry = measured['implementations'][name]
    count = entry['build']['train'][fact]
    rates.append([count / seconds for seconds in report.trial_times(entry)])
  return [Rates(*trial) for trial in zip(*rates, strict=True)]


def median_rates(measured: dict[str, Any]) -> Rates:
  """Returns the median of each rate over the trials."""
  trials = zip(*trial_rates(measured), strict=True)
  return Rates(*map(statistics.median, trials))


def table(name: str, measured: dict[str, Any]) -> Table:
  """Makes a table of the phases; the caption has the rates and the share."""
  size = Size(**measured['size'])
  phases = counts.phases(size, measured['itemsize'])
  rates, entries = median_rates(measured), measured['implementations']
  rows = {}
  for phase in phases:
    operations, moved = bound(phase, rates)
    rows[phase.name] = {
      'GFLOP': f'{phase.operations / 1e9:.2f}',
      'MB': f'{phase.all_bytes / 1e6:,.0f}',
      'ms of operations': f'{1e3 * operations:.2f}',
      'ms of bytes': f'{1e3 * moved:.2f}',
      'bound ms': f'{1e3 * max(operations, moved):.2f}',
    }
  bounds = [
    sum(max(bound(phase, each)) for phase in phases)
    for each in trial_rates(measured)
  ]
  steps = report.trial_times(entries['rmc_jax'])
  shares = [b / s for b, s in zip(bounds, steps, strict=True)]
  alone = report.step_time(entries['linears'])
  operations = entries['linears']['build']['train']['operations']

  def text(spread, form='.1f', factor=1e3):
    return spread.text(form, factor, separator=' ')

  notes = [
    f'Product {rates.product / 1e9:,.0f} GFLOP/s, copy '
    f"{rates.copy / 1e9:,.1f} GB/s, at the size of the loop's weights "
    f'{rates.weights / 1e9:,.1f} GB/s; medians.',
    f'Linears alone: {text(alone)} ms, '
    f'{operations / alone.median / 1e9:,.0f} GFLOP/s.',
    f'Bound: {text(Spread.of(bounds))} ms.',
    f'Step: {text(Spread.of(steps))} ms. '
    f'Share: {text(Spread.of(shares), ".0%", 1)}.',
  ]
  title = f'{name}: {size.text()}, one training step'
  return report.make_table(title, 'phase', rows, measured, notes)


if __name__ == '__main__':
  main()
