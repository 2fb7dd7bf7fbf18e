"""Models the time of an update against the number of devices.

  launch/benchmark.sh scaling_model --figure=scaling.png
  launch/benchmark.sh scaling_model --check=scaling.json --roofline=peaks.json

On n devices, with b examples on each:

  t(n) = max(compute(b), input(b)) + all-reduce(n)

docs/scaling.md derives the terms. Nothing is measured without --check, which
times the all-reduce alone and compares the model with the output of the
benchmark `scaling`, at the rates in that of `roofline`.
"""

import argparse
import dataclasses
import json
import pathlib
from typing import Any
from typing import NamedTuple

from rich.console import Group
from rich.table import Table

from experiments.benchmarks import accelerators
from experiments.benchmarks import counts
from experiments.benchmarks import harness
from experiments.benchmarks import report
from experiments.benchmarks import roofline
from experiments.benchmarks import scaling
from experiments.benchmarks.accelerators import Accelerator
from experiments.benchmarks.roofline import Rates
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.sizes import SIZES
from rmc_jax.analysis.scaling import draw_scaling

# Seconds that a call costs the host, with one process and with several;
# measured with 200 and 100 arrays in the state on 2 CPU cores.
CALL, CALL_OF_SEVERAL = 1.3e-3, 2.0e-3
# Adam reads gradient, parameter and two moments, and writes the last three.
_UPDATE_ARRAYS = 7
_ITEMSIZE = 4  # float32
_VOCABULARY = 267_735  # WikiText-103
_WORTHWHILE = 1.5  # times as fast, for twice the devices
_MAX_WEAK = 256  # devices


class Workload(NamedTuple):
  """A model and its data."""

  size: Size  # the core; its batch is that of one update over all devices
  outside: int = 0  # parameters of the model outside the core
  rows: int = 0  # of one example that the parameters outside multiply
  # In which each of these rows takes part: its result, two gradients, and the
  # result once more where it is too large to be saved.
  products: int = 0
  example_bytes: int = 0  # sent by the host
  updates_per_call: int = 1  # of the compiled program
  weak_batch: int = 1  # examples on each device, where the batch grows

  @property
  def parameters(self) -> int:
    return counts.parameters(self.size) + self.outside


WORKLOADS = {
  # The embedding is also the output layer, below which a Linear maps the
  # outputs of the core to its width. The logits of 64 x 100 words take 6.9 GB,
  # so they are computed in blocks, and again for the gradients.
  'language_model_paper': Workload(
    dataclasses.replace(SIZES['language_model_paper'], batch=384),
    outside=_VOCABULARY * 512 + 2501 * 512,
    rows=100,
    products=4,
    example_bytes=100 * 2 * 4,  # inputs and targets, int32
    weak_batch=64,
  ),
  # Data is generated on the device. Outside the core are an MLP and logits.
  'nth_farthest': Workload(
    SIZES['nth_farthest'].on('gpu'),
    outside=723_976,
    rows=1,
    products=3,
    updates_per_call=20,
    weak_batch=200,
  ),
}


class Row(NamedTuple):
  """The model at one number of devices; times in seconds."""

  devices: int
  batch: int  # on each
  compute: float
  all_reduce: float
  input: float

  @property
  def step(self) -> float:
    """t(n)."""
    return max(self.compute, self.input) + self.all_reduce

  @property
  def rate(self) -> float:
    """Examples per second on all devices."""
    return self.devices * self.batch / self.step


def main(arguments: list[str] | None = None) -> None:
  """Prints the tables of the model or, with --check, its errors."""
  parser = make_parser()
  options = parser.parse_args(arguments)
  if bool(options.check) != bool(options.roofline):
    parser.error('--check and --roofline require each other')
  if options.check:
    options.sizes = list(options.check)
    if missing := sorted(set(options.check) - set(options.roofline)):
      parser.error(
        f'--roofline lacks the sizes {", ".join(missing)} of --check. Run '
        'experiments.benchmarks.roofline with the same --sizes.'
      )
    report.run(parser, options, arguments, check_size, check_table)
    return

  def measure(name, options):
    return predict(WORKLOADS[name], options.gradient_bytes)

  results = report.run(parser, options, arguments, measure, tables)
  if options.figure:
    draw(options.figure, results['sizes'])


def make_parser() -> argparse.ArgumentParser:
  """Makes the parser of the flags."""
  sizes = ','.join(WORKLOADS)
  parser = report.make_parser('scaling_model', __doc__, WORKLOADS, sizes)
  add = parser.add_argument
  add('--figure', type=pathlib.Path, help='PNG file to draw')
  width = 'of a number in the all-reduce: 2 for bfloat16'
  add('--gradient_bytes', type=int, choices=(2, 4), default=4, help=width)
  check = 'output of experiments.benchmarks.scaling; determines --sizes'
  add('--check', type=_read_sizes, metavar='FILE', help=check)
  rates = 'output of experiments.benchmarks.roofline, for --check'
  add('--roofline', type=_read_sizes, metavar='FILE', help=rates)
  return parser


def _read_sizes(path: str) -> dict[str, Any]:
  """Returns size -> measured from a JSON file of a benchmark."""
  try:
    return json.loads(pathlib.Path(path).read_text())['sizes']
  except OSError as error:
    raise argparse.ArgumentTypeError(str(error)) from error


def predict(work: Workload, width: int = 4) -> dict[str, list[Row]]:
  """Returns rows for each accelerator, with a fixed and with a growing batch.

  `width` is the number of bytes of each number in the all-reduce.
  """
  batch, found = work.size.batch, {}
  for name, kind in accelerators.ACCELERATORS.items():
    # Shares of unequal size are refused.
    found[f'{name}, a batch of {batch}'] = [
      row(work, kind, n, batch // n, width)
      for n in _powers_of_two(batch)
      if batch % n == 0
    ]
    found[f'{name}, {work.weak_batch} on each'] = [
      row(work, kind, n, work.weak_batch, width)
      for n in _powers_of_two(_MAX_WEAK)
    ]
  return found


def _powers_of_two(most: int) -> list[int]:
  return [1 << i for i in range(most.bit_length())]


def row(
  work: Workload, kind: Accelerator, devices: int, batch: int, width: int
) -> Row:
  """Computes the three terms for `batch` examples on each device."""
  memory = accelerators.MEMORY_SHARE * kind.memory
  rates = Rates(accelerators.PRODUCT_SHARE * kind.product, memory, memory)
  call = CALL if devices <= kind.per_host else CALL_OF_SEVERAL
  return Row(
    devices,
    batch,
    compute(work, batch, rates, kind.step),
    accelerators.all_reduce(kind, devices, width * work.parameters),
    work.example_bytes * batch / kind.host + call / work.updates_per_call,
  )


def compute(
  work: Workload, batch: int, rates: Rates, step: float = 0.0
) -> float:
  """Returns the seconds of an update of `batch` examples on one device.

  Each phase takes as long as its operations or its bytes, whichever is longer,
  but at least `step` seconds per pass.
  """
  operations = 2 * work.products * work.outside * batch * work.rows
  moved = _ITEMSIZE * _UPDATE_ARRAYS * work.parameters
  phases = [
    *counts.phases(dataclasses.replace(work.size, batch=batch)),
    counts.Phase(
      'outside the core', operations, 0, _ITEMSIZE * work.outside, work.products
    ),
    counts.Phase('optimiser', 0, moved, 0),
  ]
  return sum(
    max(*roofline.bound(phase, rates), phase.passes * step) for phase in phases
  )


def worthwhile_devices(rows: list[Row]) -> int:
  """Returns the most devices that are 1.5 times as fast as half of them."""
  pairs = zip(rows, rows[1:], strict=False)
  return max(
    (b.devices for a, b in pairs if b.rate >= _WORTHWHILE * a.rate), default=1
  )


def tables(name: str, found: dict[str, list[Row]]) -> Group:
  """Makes a table for each accelerator and batch."""
  return Group(*[_table(f'{name}, {each}', found[each]) for each in found])


def _table(title: str, rows: list[Row]) -> Table:
  """Makes a table with a row for each number of devices."""
  cells = {
    f'{each.devices}': {
      'batch on each': f'{each.batch}',
      'compute ms': f'{1e3 * each.compute:.2f}',
      'all-reduce ms': f'{1e3 * each.all_reduce:.2f}',
      'input ms': f'{1e3 * each.input:.2f}',
      'step ms': f'{1e3 * each.step:.2f}',
      'efficiency': f'{each.rate / each.devices / rows[0].rate:.0%}',
      'examples/s': f'{each.rate:,.0f}',
    }
    for each in rows
  }
  most = worthwhile_devices(rows)
  open_end = ', the most in this table' if most == rows[-1].devices else ''
  note = (
    f'Twice the devices are {_WORTHWHILE} times as fast up to {most}{open_end}.'
  )
  return report.make_table(title, 'devices', cells, notes=[note])


def draw(path: pathlib.Path, modelled: dict[str, dict[str, list[Row]]]) -> None:
  """Draws the speed with a fixed batch relative to one device."""
  panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
  marked = {}
  for name, found in modelled.items():
    for title, rows in found.items():
      label, kind = title.split(', ')
      if kind.startswith('a batch'):
        panel = f'{name}, {kind}'
        points = [(each.devices, each.rate / rows[0].rate) for each in rows]
        panels.setdefault(panel, {})[label] = points
        marked[panel, label] = worthwhile_devices(rows)
  draw_scaling(path, panels, marked=marked)


def check_size(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
  """Times the all-reduce of the layouts of one size, and checks the model."""
  measured = options.check[name]
  rates = roofline.median_rates(options.roofline[name])
  return check(measured, rates, time_all_reduce(measured, options))


def time_all_reduce(
  measured: dict[str, Any], options: argparse.Namespace
) -> dict[str, float]:
  """Returns layout -> seconds of an all-reduce of the size of its gradient."""
  size, seconds = Size(**measured['size']), {}
  with harness.Session(options) as session:
    for name, entry in report.timed(measured).items():
      layout = scaling.Layout(**entry['layout'])
      if layout.mapped:
        seconds[name] = 0.0
      if layout.devices > 1:
        scaling.add(session, layout, size, 'all_reduce', required=True)
    session.time()
  for name, entry in session.entries.items():
    seconds[name] = report.step_time(entry).median
  return seconds


def check(
  measured: dict[str, Any], rates: Rates, exchanges: dict[str, float]
) -> list[dict[str, Any]]:
  """Compares the model with layouts whose devices share one processor.

  All devices together have the rates, so each takes n times as long as alone.
  One factor is fitted to plain jit of the same run: the share of the bound that
  is reached. `shares` is the model with the measured compute of a share with
  plain jit in place of the counted one, so its errors are those of the other
  terms.

  Args:
    measured: the result of `scaling.measure`.
    rates: of the whole machine.
    exchanges: layout -> seconds of its all-reduce.
  """
  size, entries = Size(**measured['size']), report.timed(measured)
  work = Workload(size)
  plain = report.step_time(entries[scaling.PLAIN.name]).median
  slower = plain / compute(work, size.batch, rates)
  rows = []
  for name, all_reduce in exchanges.items():
    devices = entries[name]['layout']['devices']
    share = compute(work, size.batch // devices, rates)
    predicted = slower * devices * share + all_reduce
    jitted = scaling.shares(entries, devices)
    seconds = report.step_time(entries[name]).median
    rows.append(
      {
        'layout': name,
        'measured': seconds,
        'all_reduce': all_reduce,
        'predicted': predicted,
        'error': predicted / seconds - 1,
        'shares': None if jitted is None else jitted + all_reduce,
      }
    )
  return rows


def check_table(name: str, rows: list[dict[str, Any]]) -> Table:
  """Makes a table of measured and modelled times."""
  cells = {}
  for each in rows:
    found = cells[each['layout']] = {
      'measured ms': f'{1e3 * each["measured"]:.1f}',
      'all-reduce ms': f'{1e3 * each["all_reduce"]:.1f}',
      'modelled ms': f'{1e3 * each["predicted"]:.1f}',
      'error': f'{each["error"]:+.0%}',
    }
    if each['shares'] is not None:
      error = each['shares'] / each['measured'] - 1
      found['from shares ms'] = f'{1e3 * each["shares"]:.1f}'
      found['their error'] = f'{error:+.0%}'
  worst = max(abs(each['error']) for each in rows)
  note = f'The largest error of the model is {worst:.0%}.'
  title = f'{name}: measured and modelled'
  return report.make_table(title, 'layout', cells, notes=[note])


if __name__ == '__main__':
  main()
