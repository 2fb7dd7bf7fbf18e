"""Times an update under pmap against the same work without it.

  launch/benchmark.sh scaling --sizes=nth_farthest --output=results.json

One update of a core by Adam on one global batch: with plain jit on one device;
with pmap on 1, 2, 4 and 8 devices of one process; with two processes of one
device. On a CPU all devices share its cores. So for each number n of devices
there is a third time: n times that of plain jit on an n-th of the batch, which
smaller products and n optimisers cost without pmap. The rest is the cost of
pmap itself, the exchange of gradients included, minus what devices save by
working at the same time.
"""

import argparse
from collections.abc import Mapping
import dataclasses
import os
import socket
from typing import Any
from typing import NamedTuple

import numpy as np
from rich.table import Table

from experiments.benchmarks import harness
from experiments.benchmarks import report
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.sizes import SIZES

# Relative, of the losses; the layouts add in different orders.
TOLERANCE = 1e-4


class Layout(NamedTuple):
  """How an update is done."""

  devices: int = 1  # over all processes
  processes: int = 1
  mapped: bool = True  # with pmap; False for plain jit, on one device
  share: int = 1  # n for an n-th of the global batch

  @property
  def name(self) -> str:
    if not self.mapped:
      return f'1/{self.share} by jit' if self.share > 1 else 'jit'
    name = f'pmap, {self.devices} device{"s" * (self.devices > 1)}'
    return name + f', {self.processes} processes' * (self.processes > 1)


PLAIN = Layout(mapped=False)


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  parser = report.make_parser('scaling', __doc__, SIZES, 'nth_farthest')
  for flag, default in (('devices', '1,2,4,8'), ('processes', '1,2')):
    parser.add_argument(
      f'--{flag}',
      type=lambda text: [report.positive(n) for n in text.split(',')],
      default=default,
      help=f'numbers of {flag}',
    )
  report.run(parser, parser.parse_args(arguments), arguments, measure, table)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
  """Builds every layout, compares the losses and times them."""
  size = SIZES[name].on(options.device)
  losses = []

  def check(results):
    losses.append(results['losses'])
    if not np.allclose(losses[-1], losses[0], TOLERANCE):
      raise harness.Failed(f'the losses are {losses[-1]}, not {losses[0]}')
    return {}

  with harness.Session(options) as session:
    for layout in layouts(options.devices, options.processes):
      # A share has other examples.
      whole = check if layout.share == 1 else None
      add(session, layout, size, 'update', whole)
    session.time()
    return session.result(size=dataclasses.asdict(size))


def layouts(devices: list[int], processes: list[int]) -> list[Layout]:
  """Lists plain jit, its shares, pmap in one process, and in several."""
  counts = sorted({*devices, *processes} - {1})
  return [
    PLAIN,
    *[PLAIN._replace(share=count) for count in counts],
    *[Layout(devices=count) for count in devices],
    *[Layout(count, count) for count in processes if count > 1],
  ]


def add(
  session: harness.Session,
  layout: Layout,
  size: Size,
  program: str,
  check=None,
  required: bool = False,
) -> None:
  """Adds a program of training_worker.py to the session, in a layout."""
  share, rest = divmod(size.batch, layout.share)
  if rest:
    reason = f'a batch of {size.batch} does not divide by {layout.share}'
    session.leave_out(layout.name, reason)
  else:
    # The last value of a flag wins.
    xla_flags = (
      f'{os.environ.get("XLA_FLAGS", "")} --xla_force_host_platform_device_'
      f'count={layout.devices // layout.processes}'
    )
    variables = [{'XLA_FLAGS': xla_flags} for _ in range(layout.processes)]
    if session.options.device == 'gpu' and layout.processes > 1:
      for process, each in enumerate(variables):
        each['CUDA_VISIBLE_DEVICES'] = str(process)
    request = {
      **layout._asdict(),
      'program': program,
      'size': dataclasses.asdict(dataclasses.replace(size, batch=share)),
      'coordinator': f'localhost:{_unused_port()}',
    }
    session.add(
      layout.name,
      'training_worker',
      request,
      check=check,
      variables=variables,
      required=required or layout == PLAIN,
    )
  session.entries[layout.name]['layout'] = layout._asdict()


def _unused_port() -> int:
  with socket.create_server(('localhost', 0)) as probe:
    return probe.getsockname()[1]


def table(name: str, measured: dict[str, Any]) -> Table:
  """Makes a table with a row for each layout of the whole batch."""
  entries, rows = report.timed(measured), {}
  plain = entries[PLAIN.name]
  for label, entry in entries.items():
    layout = Layout(**entry['layout'])
    if layout.share > 1:
      continue
    step = report.step_time(entry)
    cells = rows[label] = {'ms': step.text('.1f', 1e3)}
    if layout.mapped:
      more = step.median - report.step_time(plain).median
      cells['by jit'] = report.ratio(entry, plain).text('.3f')
      cells['ms more'] = f'{1e3 * more:+.1f}'
      split = shares(entries, layout.devices)
      if split is not None:
        cells['n shares, ms'] = f'{1e3 * split:.1f}'
        cells['the rest, ms'] = f'{1e3 * (step.median - split):+.1f}'
  title = f'{name}: {Size(**measured["size"]).text()}'
  note = 'The last three columns are computed from medians.'
  return report.make_table(title, 'layout', rows, measured, [note])


def shares(entries: Mapping[str, report.Entry], count: int) -> float | None:
  """Returns n times the seconds of plain jit on an n-th of the batch."""
  entry = entries.get(PLAIN._replace(share=count).name, {})
  if 'seconds' not in entry:
    return None
  return count * report.step_time(entry).median


if __name__ == '__main__':
  main()
