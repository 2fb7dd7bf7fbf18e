"""Runs an experiment, or a sweep, on this machine.

  python -m launch.local nth_farthest --preset=quick --processes=2
  python -m launch.local nth_farthest --sweep=quick_seeds --parallel=2

Each process gets its share of the cores, and of the GPUs where there are any.
What ends preempted is started again, and goes on from its checkpoint; what
crashes too, --max_restarts times. Ctrl-C or SIGTERM stops everything with a
checkpoint, and the same command goes on from there. When all runs of a sweep
are done, the experiment's analysis draws them together. The exit code is that
of the run, of the first that failed in a sweep; see the trainer's --help.
"""

import argparse
from collections.abc import Sequence
import itertools
import os
import shutil
import socket
import subprocess
import sys

from launch import job
from launch import processes


def main(arguments: Sequence[str] | None = None) -> int:
  """Returns the exit code."""
  options, runs = job.parse(_parser(), arguments)
  python = str(job.ROOT / '.venv/bin/python')
  gpus, cores = _gpus(), _cores()
  slots = min(options.parallel, len(runs))
  shares = slots * options.processes
  _check_divides(len(gpus), shares)

  def commands(run: job.Run, slot: int) -> list[list[str]]:
    port = options.port or _free_port()
    result = []
    for rank in range(options.processes):
      share = slot * options.processes + rank
      place = []
      if options.processes > 1:
        place = [
          f'--coordinator_address=localhost:{port}',
          f'--num_processes={options.processes}',
          f'--process_id={rank}',
        ]
      result.append(
        _bound_to(_share(gpus, share, shares), _share(cores, share, shares))
        + run.command(python, *place)
      )
    return result

  analysis = [
      *_bound_to(gpus, cores), python, '-P', '-m',
      f'experiments.{options.experiment}.analysis',
      *(run.workdir for run in runs),
  ]  # fmt: skip
  if options.dry_run:
    for index, run in enumerate(runs):
      for command in commands(run, index % slots):
        print(job.shell(command))
    if options.sweep:
      print(job.shell(analysis))
    return job.DONE
  set_up = subprocess.run([job.ROOT / 'launch/setup.sh'], check=False)
  if set_up.returncode:
    return set_up.returncode
  supervisor = processes.Supervisor(
    [
      processes.Task(run.name, lambda slot, run=run: commands(run, slot))
      for run in runs
    ],
    slots=slots,
    max_restarts=options.max_restarts,
    grace=options.grace,
  )
  codes = supervisor.run()
  failed = [code for code in codes.values() if code != job.DONE]
  if options.sweep:
    for name, code in codes.items():
      job.say(f'{name}: {processes.describe(code)}')
    if not failed:
      return subprocess.run(analysis, check=False).returncode
  return failed[0] if failed else job.DONE


def _parser() -> argparse.ArgumentParser:
  parser = job.parser('local', __doc__ or '')
  parser.add_argument(
    '--processes',
    type=job.number('processes', 1),
    default=1,
    help='of each run (default: 1, which uses all GPUs or cores)',
  )
  parser.add_argument(
    '--parallel',
    type=job.number('parallel', 1),
    default=1,
    help='runs of a sweep side by side (default: 1)',
  )
  parser.add_argument(
    '--grace',
    type=float,
    default=30.0,
    help='seconds for the other processes when one has failed (default: 30)',
  )
  parser.add_argument(
    '--port',
    type=job.number('port', 1),
    default=None,
    help='of the first process, in a job of several (default: a free one)',
  )
  return parser


def _check_divides(num_gpus: int, shares: int) -> None:
  if num_gpus % shares and num_gpus:
    job.fail(
      f'{num_gpus} GPUs do not divide over {shares} processes (--parallel x '
      '--processes); choose a divisor, or hide GPUs with CUDA_VISIBLE_DEVICES'
    )


def _bound_to(gpus: Sequence[str], cores: Sequence[str]) -> list[str]:
  """The beginning of a command that sees only these."""
  environment = [f'PYTHONPATH={_import_path()}', *job.large_pages()]
  if gpus:
    environment.append(f'CUDA_VISIBLE_DEVICES={",".join(gpus)}')
  bound = ['env', *environment]
  if cores and shutil.which('taskset'):
    bound += ['taskset', '--cpu-list', ','.join(cores)]
  return bound


def _share(things: Sequence[str], index: int, count: int) -> Sequence[str]:
  """The index-th of `count` shares; the same thing twice if there are few."""
  if not things:
    return ()
  if len(things) < count:
    return (things[index % len(things)],)
  first, last = (i * len(things) // count for i in (index, index + 1))
  return things[first:last]


def _gpus() -> list[str]:
  """What CUDA_VISIBLE_DEVICES allows, else all that the driver shows."""
  if 'cpu' in os.environ.get('JAX_PLATFORMS', ''):
    return []
  visible = os.environ.get('CUDA_VISIBLE_DEVICES')
  if visible is not None:
    # As CUDA does: what follows a name that is none, such as -1, is not seen.
    return list(
      itertools.takewhile(
        lambda name: name and not name.startswith('-'), visible.split(',')
      )
    )
  if not shutil.which('nvidia-smi'):
    return []
  listed = subprocess.run(
    ['nvidia-smi', '--query-gpu=index', '--format=csv,noheader'],
    capture_output=True,
    text=True,
    check=False,
  )
  return listed.stdout.split() if listed.returncode == 0 else []


def _cores() -> list[str]:
  """Those that this process may use; [] where they cannot be chosen."""
  if not hasattr(os, 'sched_getaffinity'):  # macOS.
    return []
  return [str(core) for core in sorted(os.sched_getaffinity(0))]


def _free_port() -> int:
  """One that was free a moment ago; if it is not any more, the job crashes."""
  with socket.socket() as probe:
    probe.bind(('localhost', 0))
    return probe.getsockname()[1]


def _import_path() -> str:
  there = os.environ.get('PYTHONPATH')
  return f'{job.ROOT}:{there}' if there else str(job.ROOT)


if __name__ == '__main__':
  sys.exit(main())
