"""Times programs that process items: training, input pipelines, games."""

import argparse
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from experiments import command_line
from experiments.benchmarks import harness
from experiments.benchmarks import report


def measure_with_pipeline(
  program: str, request: Mapping[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
  """Times an input pipeline alone and the training that consumes it."""
  programs = {'pipeline': f'{program}_pipeline', 'training': program}
  workers = {
    name: ('training_worker', {'program': each, **request})
    for name, each in programs.items()
  }
  return measure(workers, options)


def measure(
  workers: Mapping[str, tuple[str, Mapping[str, Any]]],
  options: argparse.Namespace,
) -> dict[str, Any]:
  """Times implementations, which must train as many parameters, if any.

  Args:
    workers: implementation -> its module of workers/ and its request; the first
      is required.
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


def table(unit: str, title: str, measured: Mapping[str, Any]) -> Table:
  """Makes a table; ratios are times per item relative to the first."""
  entries = report.timed(measured)
  base = next(iter(entries.values()))
  rows = {}
  for name, entry in entries.items():
    build = entry['build']['train']
    relative = base['build']['train']['items'] / build['items']
    ratio = report.ratio(entry, base).text('.2f', relative)
    rates = [build['items'] / seconds for seconds in report.trial_times(entry)]
    rows[name] = {
      f'{unit}/s': report.Spread.of(rates).text(',.0f'),
      'batch ms': report.step_time(entry).text('.1f', 1e3 / build['batches']),
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
