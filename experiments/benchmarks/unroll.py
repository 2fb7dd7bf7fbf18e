"""Times an unroll against the original, ports of it, and LSTMs.

  launch/benchmark.sh unroll --sizes=nth_farthest --output=results.json

Measures a training step (the mean of the squared outputs, and its gradient with
respect to every parameter) and the forward pass alone. All implementations get
the same weights and inputs; those of the relational memory must give the same
outputs, loss and gradients before they are timed. All variants are timed, and
the table shows the one with the fastest training step. `ratio` is the time
relative to the first implementation in each trial: above 1 the first is faster.
"""

import argparse
import dataclasses
from typing import Any
from typing import NamedTuple

from rich.table import Table

from experiments.benchmarks import agreement
from experiments.benchmarks import harness
from experiments.benchmarks import machine
from experiments.benchmarks import report
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.sizes import SIZES

STEPS = ('train', 'forward')
_FRAMEWORKS = ('jax', 'tensorflow', 'torch')


class Implementation(NamedTuple):
  """One implementation."""

  worker: str  # its module of workers/
  variants: tuple[str, ...] = ('',)  # ways to run it on any device
  cpu_variants: tuple[str, ...] = ()  # further ones
  gpu_variants: tuple[str, ...] = ()
  compared: bool = True  # False: not a relational memory, so results differ
  gpu: bool = True  # whether it runs on a GPU
  precisions: tuple[str, ...] = report.PRECISIONS
  variables: dict[str, str] = {}  # environment variables


# As many devices as there are cores, with the batch split as in training.
PER_CORE = 'a device per core'
_OURS = Implementation('jax_worker', cpu_variants=(PER_CORE,))

IMPLEMENTATIONS = {
  'rmc_jax': _OURS,
  # On one device and without large pages: jax.jit in a program of one's own.
  'plain_jit': Implementation(
    'jax_worker', gpu=False, variables={'GLIBC_TUNABLES': ''}
  ),
  'rmc_jax_remat': _OURS,
  # Our core in Haiku's unroll, which projects the input in every step.
  'dynamic_unroll': _OURS,
  'sonnet': Implementation(
    'sonnet_worker', ('steps', 'loop'), gpu=False, precisions=('float32',)
  ),
  'torch_eager': Implementation('torch_worker'),
  'torch_compile': Implementation(
    'torch_worker', ('step', 'unroll'), gpu_variants=('unroll, CUDA graphs',)
  ),
  # Another function, with a state of the same size.
  'hk_lstm': _OURS._replace(compared=False),
  'torch_lstm': Implementation('torch_worker', compared=False),
}


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  parser = make_parser()
  options = parser.parse_args(arguments)
  if options.remat and 'rmc_jax_remat' not in options.implementations:
    options.implementations = [*options.implementations, 'rmc_jax_remat']
  report.run(parser, options, arguments, measure, table)


def make_parser() -> argparse.ArgumentParser:
  """Makes the parser of the flags."""
  parser = report.make_parser('unroll', __doc__, SIZES, 'nth_farthest')
  add = parser.add_argument
  add(
    '--implementations',
    type=report.names_of(IMPLEMENTATIONS),
    default=','.join(n for n in IMPLEMENTATIONS if n != 'rmc_jax_remat'),
    help=f'of {", ".join(IMPLEMENTATIONS)}; ratios are relative to the first',
  )
  add('--remat', action='store_true', help='adds rmc_jax_remat')
  add('--batch', type=report.positive, help='replaces the batch of the size')
  report.add_precision(parser)
  return parser


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
  """Builds, compares and times all variants of the implementations."""
  size = SIZES[name].on(options.device)
  size = dataclasses.replace(size, batch=options.batch or size.batch)
  expected = {}
  with harness.Session(options) as session:
    for name in options.implementations:
      implementation = IMPLEMENTATIONS[name]
      if reason := obstacle(implementation, options):
        session.leave_out(name, reason)
        continue
      sonnet = implementation.worker == 'sonnet_worker'
      arrays = session.folder / f'{implementation.worker}.npz'
      agreement.write(arrays, size, sonnet=sonnet)

      def check(results, sonnet=sonnet):
        found = agreement.by_haiku_names(results) if sonnet else results
        expected.update(expected or found)
        differences = agreement.difference(found, expected)
        if reason := agreement.disagreement(differences, options.precision):
          raise harness.Failed(reason)
        return {'difference': differences}

      more = getattr(implementation, f'{options.device}_variants')
      for variant in implementation.variants + more:
        label = f'{name} ({variant})' if variant else name
        variables = dict(implementation.variables)
        request = {
          'name': name,
          'variant': variant,
          'arguments': size.arguments(),
          'arrays': str(arrays),
          'cores': machine.cores(),
          'devices': machine.cores() if variant == PER_CORE else None,
          'device': options.device,
          'precision': options.precision,
        }
        if variant == PER_CORE:
          variables['JAX_NUM_CPU_DEVICES'] = str(machine.cores())
        session.add(
          label,
          implementation.worker,
          request,
          steps=STEPS,
          check=check if implementation.compared else None,
          variables=[variables],
        )
        session.entries[label] |= {'implementation': name, 'variant': variant}
    expected.clear()
    for step in STEPS:
      session.time(step)
    return session.result(
      size=dataclasses.asdict(size), precision=options.precision
    )


def obstacle(
  implementation: Implementation, options: argparse.Namespace
) -> str | None:
  """Returns why the options exclude an implementation; None if they do not."""
  if options.device == 'gpu' and not implementation.gpu:
    return 'runs on a CPU only'
  if options.precision not in implementation.precisions:
    return f'supports {" and ".join(implementation.precisions)} only'
  return None


def table(title: str, measured: dict[str, Any]) -> Table:
  """Makes a table with a row for each implementation."""
  size = Size(**measured['size'])
  fastest: dict[str, report.Entry] = {}
  for entry in report.timed(measured).values():
    other = fastest.setdefault(entry['implementation'], entry)
    if report.step_time(entry).median < report.step_time(other).median:
      fastest[entry['implementation']] = entry
  base = next(iter(fastest.values()), {})
  rows = {}
  for name, entry in fastest.items():
    about = [f'{n} {v}' for n, v in entry['about'].items() if n in _FRAMEWORKS]
    about += [entry['variant']] * bool(entry['variant'])
    cells = rows[f'{name}\n{", ".join(about)}'] = {}
    for step in STEPS:
      ratio = report.ratio(entry, base, step).text('.2f')
      cells[f'{step} ms'] = report.step_time(entry, step).text('.1f', 1e3)
      cells[f'{step} ratio'] = '' if entry is base else ratio
    build = entry['build']['train']
    worst = max(entry.get('difference', {}).values(), default=0.0)
    cells |= {
      'build s': f'{build["seconds"]:.1f}',
      'peak MB': report.megabytes(entry['memory_bytes']),
      'XLA MB': report.megabytes(build.get('temp_bytes')),
      'differs': f'{worst:.0e}' if worst else '',
    }
  title = (
    f'{title}: {size.text()}, {size.num_heads} heads, {size.mlp_layers} MLP '
    f'layers, {size.gate_style} gates, input {size.features}'
  )
  return report.make_table(title, 'implementation', rows, measured)


if __name__ == '__main__':
  main()
