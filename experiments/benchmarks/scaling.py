"""Times an update under pmap beside the same work without it.

  launch/benchmark.sh scaling --sizes=nth_farthest --output=results.json

One update of a core by Adam on one global batch: by plain jit on one device; by
pmap on 1, 2, 4 and 8 devices, a process each; by two processes of one device.
On a CPU all devices share its cores. So for each number n of devices there is a
third time: n times that of plain jit on an n-th of the batch, which is what
smaller products and n optimisers cost without pmap. The rest is what pmap
itself costs, exchange of gradients included, less what it saves where devices
work at the same time.
"""

import argparse
from concurrent import futures
import dataclasses
import json
import os
import pathlib
import socket
import sys
import tempfile
from typing import Any
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.benchmarks import contest
from experiments.benchmarks import contestants
from experiments.benchmarks import machine
from experiments.benchmarks import options as options_lib
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.sizes import SIZES

# Of the losses in the different layouts, which add in different orders.
TOLERANCE = 1e-4
_COLUMNS = ('ms', 'by jit', 'ms more', 'n shares, ms', 'the rest, ms')


class Layout(NamedTuple):
  """How an update is done.

  Attributes:
    devices: over all processes.
    processes: that share the devices.
    mapped: by pmap; False for plain jit, on one device.
    share: 1 for the global batch, n for an n-th of it.
  """

  devices: int = 1
  processes: int = 1
  mapped: bool = True
  share: int = 1

  @property
  def name(self) -> str:
    if not self.mapped:
      return f'1/{self.share} by jit' if self.share > 1 else 'jit'
    devices = f'{self.devices} device{"s" * (self.devices > 1)}'
    if self.processes == 1:
      return f'pmap, {devices}'
    return f'pmap, {devices}, {self.processes} processes'


PLAIN = Layout(mapped=False)


class Job(contest.Worker):
  """Several processes as one contestant."""

  def __init__(self, commands, environments, folder):
    """Starts them; a command and an environment for each."""
    self._workers = [
      contest.Worker(command, environment, folder)
      for command, environment in zip(commands, environments, strict=True)
    ]

  def ask(self, limit: float, **question: Any) -> dict[str, Any]:
    """Asks all at once, each with its `process`; the first one's answer."""
    with futures.ThreadPoolExecutor(len(self._workers)) as pool:
      asked = []
      for process, worker in enumerate(self._workers):
        own = question | {'process': process}
        if 'path' in question and process:  # A file for each.
          own['path'] = f'{question["path"]}.{process}.npz'
        asked.append(pool.submit(worker.ask, limit, **own))
      done, _ = futures.wait(asked, return_when=futures.FIRST_EXCEPTION)
      failed = [error for each in done if (error := each.exception())]
      if failed:  # The others would wait for it.
        self.kill()
        raise failed[0]
    return asked[0].result()

  def cpu_seconds(self) -> float:
    """Of all of them."""
    return sum(worker.cpu_seconds() for worker in self._workers)

  def kill(self) -> None:
    """Ends all of them; a question under way fails."""
    for worker in self._workers:
      worker.kill()

  def stop(self) -> None:
    """Ends all of them, and gives back what they held."""
    for worker in self._workers:
      worker.stop()


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  arguments = sys.argv[1:] if arguments is None else arguments
  options = _parse(arguments)
  results: dict[str, Any] = {
    **machine.describe('experiments.benchmarks.scaling', arguments),
    'device': options.device,
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
  """Builds every layout, checks that they agree, and times them in turn.

  Raises:
    contest.Failed: plain jit fails.
  """
  entries: dict[str, dict[str, Any]] = {}
  workers: dict[str, contest.Worker] = {}
  with tempfile.TemporaryDirectory() as folder:
    try:
      expected = None
      for layout in layouts(options.devices, options.processes):
        print(f'scaling: {layout.name} is building', file=sys.stderr)
        entry = entries[layout.name] = {'layout': layout._asdict()}
        worker = workers[layout.name] = start(layout, options, folder)
        try:
          entry |= build(worker, layout, size, options)
          losses = _losses(worker, options, folder)
        except contest.Failed as failed:
          if layout == PLAIN:
            raise
          workers.pop(layout.name).stop()
          entry['left_out'] = str(failed)
          continue
        expected = losses if expected is None else expected
        # A share has other examples.
        if layout.share == 1 and not np.allclose(losses, expected, TOLERANCE):
          workers.pop(layout.name).stop()
          entry['left_out'] = f'refused: losses {losses}, not {expected}'
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
    entries[name]['left_out'] = reason
  for name, seconds in played.seconds.items():
    entries[name]['seconds'] = seconds
  return {
    'size': dataclasses.asdict(size),
    'layouts': entries,
    'idle_share': played.idle_share,
  }


def layouts(devices: list[int], processes: list[int]) -> list[Layout]:
  """Plain jit, its shares, pmap on one process, and on several of 1 device."""
  counts = sorted({*devices, *processes} - {1})
  return [
    PLAIN,
    *[PLAIN._replace(share=count) for count in counts],
    *[Layout(devices=count) for count in devices],
    *[Layout(count, count) for count in processes if count > 1],
  ]


def start(
  layout: Layout, options, folder, program: str = 'scaling_worker'
) -> contest.Worker:
  """The processes of a layout; `program` is a file of workers/."""
  environment = contestants.environment(options.device, folder)
  # Of two counts the last holds.
  environment['XLA_FLAGS'] = (
    f'{os.environ.get("XLA_FLAGS", "")} --xla_force_host_platform_device_'
    f'count={layout.devices // layout.processes}'
  )
  environments = [environment] * layout.processes
  if options.device == 'gpu' and layout.processes > 1:
    environments = [
      {**environment, 'CUDA_VISIBLE_DEVICES': str(process)}
      for process in range(layout.processes)
    ]
  return Job(
    [contestants.program('jax', program)] * layout.processes,
    environments,
    machine.CHECKOUT,
  )


def build(worker, layout: Layout, size: Size, options) -> dict[str, Any]:
  """Has it build its update of its share; what it says of it."""
  job = {'coordinator': None, 'processes': layout.processes}
  if layout.processes > 1:
    job['coordinator'] = f'localhost:{_unused_port()}'
  share, rest = divmod(size.batch, layout.share)
  if rest:
    raise contest.Failed(
      f'a batch of {size.batch} does not divide by {layout.share}'
    )
  loaded = worker.ask(
    options.limit,
    ask='load',
    size=dataclasses.asdict(dataclasses.replace(size, batch=share)),
    mapped=layout.mapped,
    devices=layout.devices,
    **job,
  )
  built = worker.ask(options.limit, ask='build', what='train')
  return {**loaded, 'build': built}


def _losses(worker, options, folder) -> np.ndarray:
  path = pathlib.Path(folder, 'losses.npz')
  worker.ask(options.limit, ask='check', path=str(path))
  with np.load(path) as file:
    return file['losses']


def table(name: str, measured: dict[str, Any]) -> Table:
  """A row for each layout of the whole batch."""
  size, entries = Size(**measured['size']), measured['layouts']
  shown = Table(
    title=f'{name}: T={size.steps} B={size.batch}, {size.mem_slots} x '
    f'{size.slot_width}',
    caption='\n'.join(
      [
        'Medians (lowest to highest of the rounds); the last three columns '
        'are of medians.',
        f'Idle layouts used {measured["idle_share"]:.1%} of a core or less.',
        *(
          f'{layout}: {entry["left_out"]}'
          for layout, entry in entries.items()
          if 'left_out' in entry
        ),
      ]
    ),
    caption_justify='left',
  )
  shown.add_column('layout')
  for column in _COLUMNS:
    shown.add_column(column, justify='right')
  plain = entries[PLAIN.name]['seconds']
  base = 1e3 * contest.step_time(plain).median
  for entry in entries.values():
    layout = Layout(**entry['layout'])
    if 'left_out' in entry or layout.share > 1:
      continue
    step = contest.step_time(entry['seconds']).scaled(1e3)
    if not layout.mapped:
      shown.add_row(layout.name, step.text('.1f'))
      continue
    split = shares(entries, layout.devices)
    shown.add_row(
      layout.name,
      step.text('.1f'),
      contest.ratio(entry['seconds'], plain).text('.3f'),
      f'{step.median - base:+.1f}',
      '' if split is None else f'{split:.1f}',
      '' if split is None else f'{step.median - split:+.1f}',
    )
  return shown


def shares(entries: dict[str, dict[str, Any]], count: int) -> float | None:
  """n updates of an n-th of the batch by plain jit, in ms; None if unknown."""
  entry = entries.get(PLAIN._replace(share=count).name, {})
  if 'seconds' not in entry:
    return None
  return 1e3 * count * contest.step_time(entry['seconds']).median


def _unused_port() -> int:
  with socket.socket() as probe:
    probe.bind(('localhost', 0))
    return probe.getsockname()[1]


def _parse(arguments: list[str]) -> argparse.Namespace:
  parser = options_lib.parser(
    'scaling', str(__doc__).partition('\n')[0], SIZES, ['nth_farthest']
  )
  for flag, default in (('devices', '1,2,4,8'), ('processes', '1,2')):
    parser.add_argument(
      f'--{flag}',
      type=lambda text: [options_lib.positive(n) for n in text.split(',')],
      default=default,
      help=f'numbers of {flag} (default: {default})',
    )
  return parser.parse_args(arguments)


if __name__ == '__main__':
  main()
