"""Models the time of an update against the number of devices.

  python -m experiments.benchmarks.scaling_model
  python -m experiments.benchmarks.scaling_model --sizes=nth_farthest \
      --check=scaling.json --roofline=roofline.json

On n devices, with b examples on each:

  t(n) = max(compute(b), input(b)) + all-reduce(n)

docs/scaling.md derives the terms. Nothing is measured without --check, which
compares the model with what experiments.benchmarks.scaling measured, at the
rates that experiments.benchmarks.roofline did, and times the all-reduce alone.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys
import tempfile
from typing import Any
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from experiments.benchmarks import accelerators
from experiments.benchmarks import contest
from experiments.benchmarks import counts
from experiments.benchmarks import machine
from experiments.benchmarks import options as options_lib
from experiments.benchmarks import roofline
from experiments.benchmarks import scaling
from experiments.benchmarks.accelerators import Accelerator
from experiments.benchmarks.roofline import Rates
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.sizes import SIZES
import rmc_jax
from rmc_jax.analysis.scaling import draw_scaling
from rmc_jax.models import SequenceClassifier

# Seconds a call costs the host, from one process and from several; measured
# with 200 and 100 arrays in the state on 2 CPU cores.
CALL, CALL_OF_SEVERAL = 1.3e-3, 2.0e-3
# Adam reads gradient, parameter and two moments, and writes the last three.
_UPDATE_ARRAYS = 7
_ITEMSIZE = 4  # float32, as the core has all its arrays
_VOCABULARY = 267_735  # WikiText-103
_PAYS = 1.5  # times as fast, for twice the devices
_WEAK_MOST = 256  # devices


class Workload(NamedTuple):
  """What is trained.

  Attributes:
    size: the core; its batch is that of one update over all devices.
    parameters: of the whole model.
    rows: that the parameters outside the core see of one example.
    products: that each of these rows takes part in: its result, two gradients,
      and the result once more where it is too large to be kept.
    example_bytes: what the host sends.
    updates_per_call: of the compiled program.
    weak_batch: examples on each device where the batch grows with them.
  """

  size: Size
  parameters: int
  rows: int
  products: int
  example_bytes: int
  updates_per_call: int
  weak_batch: int


class Row(NamedTuple):
  """One number of devices; times in seconds."""

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
    """Examples a second, on all of them."""
    return self.devices * self.batch / self.step


def main(arguments: list[str] | None = None) -> None:
  """Prints the model's tables, or with --check how far off it is."""
  arguments = sys.argv[1:] if arguments is None else arguments
  options = _parse(arguments)
  console = Console(width=100)
  results: dict[str, Any] = machine.describe(
    'experiments.benchmarks.scaling_model', arguments
  )
  if options.check:
    results['check'] = checked = check_files(options)
    for name, rows in checked.items():
      console.print(check_table(name, rows))
  else:
    results['sizes'] = modelled = {
      name: predict(WORKLOADS[name](), options.gradient_bytes)
      for name in options.sizes
    }
    for name, found in modelled.items():
      for title, rows in found.items():
        console.print(table(f'{name}, {title}', rows))
    if options.figure:
      draw(options.figure, modelled)
  if options.output:
    options.output.write_text(json.dumps(results, indent=1))


def predict(work: Workload, gradient_bytes: int = 4) -> dict[str, list[Row]]:
  """Rows for each machine, with one batch cut up and with a growing one.

  Args:
    work: what is trained.
    gradient_bytes: of each number that is exchanged.
  """
  batch = work.size.batch
  found = {}
  for name, kind in accelerators.ACCELERATORS.items():
    # Others have shares of unequal size, which are refused.
    strong = [n for n in _powers_of_two(batch) if batch % n == 0]
    found[f'{name}, a batch of {batch}'] = [
      row(work, kind, n, batch // n, gradient_bytes) for n in strong
    ]
    found[f'{name}, {work.weak_batch} on each'] = [
      row(work, kind, n, work.weak_batch, gradient_bytes)
      for n in _powers_of_two(_WEAK_MOST)
    ]
  return found


def row(
  work: Workload,
  kind: Accelerator,
  devices: int,
  batch: int,
  gradient_bytes: int,
) -> Row:
  """The three terms, for `batch` examples on each device."""
  memory = accelerators.MEMORY_SHARE * kind.memory
  rates = Rates(accelerators.PRODUCT_SHARE * kind.product, memory, memory)
  # Made by the hosts while the devices compute.
  call = CALL if devices <= kind.per_host else CALL_OF_SEVERAL
  return Row(
    devices,
    batch,
    compute(work, batch, rates, kind.step),
    accelerators.all_reduce(kind, devices, gradient_bytes * work.parameters),
    work.example_bytes * batch / kind.host + call / work.updates_per_call,
  )


def compute(
  work: Workload, batch: int, rates: Rates, step: float = 0.0
) -> float:
  """Seconds of the phases of an update of `batch` examples on one device.

  Each takes as long as its operations or its bytes, whichever is longer, but
  `step` seconds at least for each time that it goes through the weights.
  """
  outside = work.parameters - counts.parameters(work.size)
  rows = batch * work.rows
  phases = [
    *counts.training_step(dataclasses.replace(work.size, batch=batch)),
    counts.Phase(
      'outside the core',
      2 * work.products * outside * rows,
      0,
      _ITEMSIZE * outside,
      work.products,
    ),
    counts.Phase(
      'optimiser', 0, _ITEMSIZE * _UPDATE_ARRAYS * work.parameters, 0
    ),
  ]
  return sum(
    max(*roofline.bound(phase, rates), phase.passes * step) for phase in phases
  )


def pays_up_to(rows: list[Row]) -> int:
  """The most devices that are 1.5 times as fast as half of them."""
  pairs = zip(rows, rows[1:], strict=False)
  return max(
    (b.devices for a, b in pairs if b.rate >= _PAYS * a.rate), default=1
  )


def table(title: str, rows: list[Row]) -> Table:
  """A row for each number of devices."""
  most = pays_up_to(rows)
  open_end = ', the most in this table' if most == rows[-1].devices else ''
  shown = Table(
    title=title,
    caption=f'Twice the devices are {_PAYS} times as fast up to {most}'
    f'{open_end}.',
    caption_justify='left',
  )
  columns = 'devices,batch on each,compute ms,all-reduce ms,input ms,step ms'
  for column in [*columns.split(','), 'efficiency', 'examples/s']:
    shown.add_column(column, justify='right')
  for each in rows:
    times = each.compute, each.all_reduce, each.input, each.step
    shown.add_row(
      f'{each.devices}',
      f'{each.batch}',
      *[f'{1e3 * seconds:.2f}' for seconds in times],
      f'{each.rate / each.devices / rows[0].rate:.0%}',
      f'{each.rate:,.0f}',
    )
  return shown


def draw(path: pathlib.Path, modelled: dict[str, dict[str, list[Row]]]) -> None:
  """The rows with one batch, as times as fast as one device."""
  panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
  marked = {}
  for name, found in modelled.items():
    for title, rows in found.items():
      label, kind = title.split(', ')
      if not kind.startswith('a batch'):
        continue
      panel = f'{name}, {kind}'
      points = [(each.devices, each.rate / rows[0].rate) for each in rows]
      panels.setdefault(panel, {})[label] = points
      marked[panel, label] = pays_up_to(rows)
  draw_scaling(path, panels, marked=marked)


def check_files(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
  """Compares each size of --check; measures the all-reduce of its layouts."""
  measured = json.loads(options.check.read_text())['sizes']
  rates = json.loads(options.roofline.read_text())['sizes']
  if missing := set(measured) - set(rates):
    raise SystemExit(
      f'{options.roofline} has no {", ".join(sorted(missing))}, which '
      f'{options.check} has. Run experiments.benchmarks.roofline with the same '
      '--sizes.'
    )
  return {
    name: check(found, measured_rates(rates[name]), exchange(found, options))
    for name, found in measured.items()
  }


def check(
  measured: dict[str, Any], rates: Rates, exchanges: dict[str, float]
) -> list[dict[str, Any]]:
  """What the model says of layouts whose devices share one processor.

  All devices together have the rates, so what each does takes n times as long
  as alone. One factor, from plain jit of the same run, stands for the share of
  the bound that is reached; the rest is predicted. `shares` is what the model
  says with the compute of a share as plain jit takes for it, not as counted:
  its errors are those of the other terms.

  Args:
    measured: of one size, as `scaling.measure` returns it.
    rates: of the whole machine.
    exchanges: layout -> seconds of its all-reduce.
  """
  size, entries = Size(**measured['size']), measured['layouts']
  work = Workload(size, counts.parameters(size), 0, 0, 0, 1, size.batch)
  plain = contest.step_time(entries[scaling.PLAIN.name]['seconds']).median
  slower = plain / compute(work, size.batch, rates)
  rows = []
  for name, entry in entries.items():
    layout = scaling.Layout(**entry['layout'])
    if not layout.mapped or 'left_out' in entry:
      continue
    share = compute(work, size.batch // layout.devices, rates)
    predicted = slower * layout.devices * share + exchanges[name]
    jitted = scaling.shares(entries, layout.devices)  # ms
    seconds = contest.step_time(entry['seconds']).median
    rows.append(
      {
        'layout': name,
        'measured': seconds,
        'predicted': predicted,
        'shares': None if jitted is None else jitted / 1e3 + exchanges[name],
        'all_reduce': exchanges[name],
        'error': predicted / seconds - 1,
      }
    )
  return rows


def measured_rates(found: dict[str, Any]) -> Rates:
  """Of one size, as `roofline.measure` returns it; medians."""

  def rate(name, fact):
    seconds = contest.step_time(found['seconds'][name]).median
    return found['facts'][name][fact] / seconds

  return Rates(
    rate('product', 'operations'),
    rate('copy', 'bytes'),
    rate('weights', 'bytes'),
  )


def exchange(
  measured: dict[str, Any], options: argparse.Namespace
) -> dict[str, float]:
  """Layout -> seconds of an all-reduce of as many bytes as its gradient has."""
  size = Size(**measured['size'])
  seconds: dict[str, float] = {}
  with tempfile.TemporaryDirectory() as folder:
    for name, entry in measured['layouts'].items():
      layout = scaling.Layout(**entry['layout'])
      if not layout.mapped or 'left_out' in entry:
        continue
      seconds[name] = 0.0
      if layout.devices == 1:
        continue
      worker = scaling.start(layout, options, folder, 'all_reduce_worker')
      try:
        scaling.build(worker, layout, size, options)
        played = contest.play(
          {name: worker},
          'train',
          rounds=options.rounds,
          turn_seconds=options.turn_seconds,
          limit=options.limit,
        )
      finally:
        worker.stop()
      if name in played.failures:
        raise contest.Failed(f'{name}: {played.failures[name]}')
      seconds[name] = contest.step_time(played.seconds[name]).median
  return seconds


def check_table(name: str, rows: list[dict[str, Any]]) -> Table:
  """What was measured, what the model says, and by how much it is off."""
  worst = max(abs(each['error']) for each in rows)
  shown = Table(
    title=f'{name}: measured and modelled',
    caption=f'The model is off by {worst:.0%} at most.',
    caption_justify='left',
  )
  shown.add_column('layout')
  columns = 'measured ms,all-reduce ms,modelled ms,error,from shares ms,error'
  for column in columns.split(','):
    shown.add_column(column, justify='right')
  for each in rows:
    shares = each['shares']
    shown.add_row(
      each['layout'],
      *[
        f'{1e3 * each[key]:.1f}'
        for key in ('measured', 'all_reduce', 'predicted')
      ],
      f'{each["error"]:+.0%}',
      '' if shares is None else f'{1e3 * shares:.1f}',
      '' if shares is None else f'{shares / each["measured"] - 1:+.0%}',
    )
  return shown


def nth_farthest() -> Workload:
  """The paper's size: experiments/nth_farthest makes its data on the device."""
  size = dataclasses.replace(SIZES['nth_farthest'], batch=1600)

  def model(inputs):  # [B, T, X]
    return SequenceClassifier(_core(size), num_classes=8)(inputs)

  inputs = jax.ShapeDtypeStruct((1, size.steps, size.features), jnp.float32)
  return Workload(size, _parameters(model, inputs), 1, 3, 0, 20, 200)


def language_model() -> Workload:
  """The paper's size: the embedding is also the output layer.

  The logits of 64 x 100 words take 6.9 GB, so that they are made in blocks, and
  made again for the gradients.
  """
  size = dataclasses.replace(SIZES['language_model_paper'], batch=384)

  def model(words):  # [T, B]
    core, embed = _core(size), hk.Embed(_VOCABULARY, size.features)
    state = core.initial_state(words.shape[1])
    outputs, _ = rmc_jax.unroll(core, embed(words), state)
    return hk.Linear(size.features)(outputs) @ embed.embeddings.T

  words = jax.ShapeDtypeStruct((size.steps, 1), jnp.int32)
  example_bytes = 2 * 4 * size.steps  # words and the words after them, int32
  return Workload(
    size, _parameters(model, words), size.steps, 4, example_bytes, 1, 64
  )


WORKLOADS = {
  'language_model_paper': language_model,
  'nth_farthest': nth_farthest,
}


def _core(size):
  return rmc_jax.RelationalMemory(**size.arguments())


def _parameters(model, inputs: jax.ShapeDtypeStruct) -> int:
  """The number of scalars of the model; makes none of them."""
  init = hk.transform(model).init
  params = jax.eval_shape(init, jax.random.key(0), inputs)
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def _powers_of_two(most: int) -> list[int]:
  return [1 << i for i in range(most.bit_length())]


def _parse(arguments: list[str]) -> argparse.Namespace:
  parser = options_lib.parser(
    'scaling_model', str(__doc__).partition('\n')[0], WORKLOADS, WORKLOADS
  )
  parser.add_argument(
    '--figure', type=pathlib.Path, help='where to draw it, as PNG'
  )
  parser.add_argument(
    '--gradient_bytes',
    type=int,
    choices=(2, 4),
    default=4,
    help='of a number in the all-reduce: 2 for bfloat16 (default: 4)',
  )
  parser.add_argument(
    '--check',
    type=pathlib.Path,
    help="what experiments.benchmarks.scaling wrote; --sizes are the file's",
  )
  parser.add_argument(
    '--roofline',
    type=pathlib.Path,
    help='what experiments.benchmarks.roofline wrote, for --check',
  )
  options = parser.parse_args(arguments)
  for flag in ('check', 'roofline'):
    path = getattr(options, flag)
    if path and not path.is_file():
      parser.error(f'--{flag}: there is no file {path}')
  if bool(options.check) != bool(options.roofline):
    parser.error('--check and --roofline go together')
  return options


if __name__ == '__main__':
  main()
