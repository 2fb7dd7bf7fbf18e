"""Times programs that process items: training, and input pipelines alone."""

import argparse
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from experiments import command_line
from experiments.benchmarks import harness
from experiments.benchmarks import report

# Implementation -> its module of workers/ and its request.
Workers = Mapping[str, tuple[str, Mapping[str, Any]]]


def with_pipeline(program: str, request: Mapping[str, Any]) -> Workers:
  """Returns the workers of an input pipeline alone and of its training."""
  pipeline = {'program': f'{program}_pipeline', **request}
  training = {'program': program, **request}
  return {
    'pipeline': ('training_worker', pipeline),
    'training': ('training_worker', training),
  }


def measure(workers: Workers, options: argparse.Namespace) -> dict[str, Any]:
  """Times implementations, which must train as many parameters.

  Args:
    workers: what to time; the first is required.
    options: the flags.
  """
  # The experiments split the CPU in the same way.
  devices = {'JAX_NUM_CPU_DEVICES': str(command_line.default_cpu_devices())}
  counts = []

  def check(results):
    if 'parameters' in results:
      counts.append(int(results['parameters']))
      if counts[-1] != counts[0]:
        raise harness.Failed(f'trains {counts[-1]} parameters, not {counts[0]}')
    return {}

  with harness.Session(options) as session:
    for name, (worker, request) in workers.items():
      session.add(
        name,
        worker,
        request,
        check=check,
        variables=[devices],
        required=name == next(iter(workers)),
      )
    session.time()
    return session.result()


def table(title: str, unit: str, measured: Mapping[str, Any]) -> Table:
  """Makes a table; ratios are times per item relative to the first."""
  entries = report.timed(measured)
  base = next(iter(entries.values()))
  rows = {}
  for name, entry in entries.items():
    build = entry['build']['train']
    relative = base['build']['train']['items'] / build['items']
    step = report.step_time(entry)
    ratio = report.ratio(entry, base).text('.2f', relative)
    rates = [build['items'] / seconds for seconds in report.trial_times(entry)]
    rows[name] = {
      f'{unit}/s': report.Spread.of(rates).text(',.0f'),
      'batch ms': step.text('.1f', 1e3 / build['batches']),
      'ratio': '' if entry is base else ratio,
      'build s': f'{build["seconds"]:.1f}',
      'peak MB': report.megabytes(entry['memory_bytes']),
      'total MB': report.megabytes(entry['peak_bytes']),
    }
  note = (
    'Peak memory is that of a device, or of the process on a CPU; total MB '
    'includes the memory before the first step.'
  )
  return report.make_table(title, 'implementation', rows, measured, [note])
