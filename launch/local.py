"""Runs an experiment or a sweep on this machine.

  python -m launch.local nth_farthest --preset=quick --processes=2
  python -m launch.local nth_farthest --sweep=quick_seeds --parallel=2

Each process gets an equal share of the CPU cores and GPUs. A preempted run is
restarted from its checkpoint, a crashed one at most --max_restarts times
without a newer checkpoint. Ctrl-C or SIGTERM saves a checkpoint and stops; the
same command then resumes. After all runs of a sweep are done, the experiment's
analysis runs on them. The exit code is the trainer's; for a sweep, that of the
first run that failed.
"""

from collections.abc import Sequence
import functools
import itertools
import os
import pathlib
import shlex
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
  if len(gpus) % shares:
    job.fail(
      f'{len(gpus)} GPUs cannot be divided among {shares} processes '
      '(--parallel x --processes); choose a divisor of the number of GPUs or '
      'hide some of them with CUDA_VISIBLE_DEVICES'
    )

  def commands(run: job.Run, slot: int) -> list[list[str]]:
    address, size = f'localhost:{_free_port()}', options.processes
    result = []
    for rank in range(size):
      flags = job.rank_flags(address, size, rank) if size > 1 else []
      prefix = _prefix(gpus, cores, slot * size + rank, shares)
      result.append(prefix + run.command(python, *flags))
    return result

  analysis = [
      *_prefix(gpus, cores), python, '-P', '-m',
      f'experiments.{options.experiment}.analysis',
      *(run.workdir for run in runs),
  ]  # fmt: skip
  if options.dry_run:
    for index, run in enumerate(runs):
      for command in commands(run, index % slots):
        print(shlex.join(command))
    if options.sweep:
      print(shlex.join(analysis))
    return job.DONE
  setup = subprocess.run([job.ROOT / 'launch/setup.sh'], check=False)
  if setup.returncode:
    return setup.returncode
  workdirs = {run.name: run.workdir for run in runs}
  supervisor = processes.Supervisor(
    {run.name: functools.partial(commands, run) for run in runs},
    slots=slots,
    max_restarts=options.max_restarts,
    grace=options.grace,
    progress=lambda name: _newest_checkpoint(workdirs[name]),
  )
  codes = supervisor.run()
  if options.sweep:
    for name, code in codes.items():
      job.log(f'{name}: {processes.describe(code)}')
    if not any(codes.values()):
      return subprocess.run(analysis, check=False).returncode
  return next(filter(None, codes.values()), job.DONE)


def _parser() -> job.Parser:
  parser = job.Parser('local', __doc__)
  parser.add_integer(
    '--processes',
    'processes of each run (default: 1, which uses all GPUs or cores)',
    default=1,
  )
  parser.add_integer(
    '--parallel', 'runs of a sweep at the same time (default: 1)', default=1
  )
  parser.add_argument(
    '--grace',
    type=float,
    default=30.0,
    help='seconds for the other processes of a run to exit after one has '
    'failed (default: 30)',
  )
  return parser


def _prefix(
  gpus: Sequence[str], cores: Sequence[str], share: int = 0, shares: int = 1
) -> list[str]:
  """Returns the start of a command that uses only a share of the machine."""
  inherited = os.environ.get('PYTHONPATH')
  path = f'{job.ROOT}:{inherited}' if inherited else job.ROOT
  prefix = ['env', f'PYTHONPATH={path}', job.large_pages()]
  if gpus:
    own = _share(gpus, share, shares)
    prefix.append(f'CUDA_VISIBLE_DEVICES={",".join(own)}')
  if cores and shutil.which('taskset'):
    own = _share(cores, share, shares)
    prefix += ['taskset', '--cpu-list', ','.join(own)]
  return prefix


def _share(items: Sequence[str], index: int, count: int) -> Sequence[str]:
  """Returns one of `count` shares; shares overlap if there are few items."""
  if len(items) < count:
    return (items[index % len(items)],)
  first, last = (i * len(items) // count for i in (index, index + 1))
  return items[first:last]


def _gpus() -> list[str]:
  """Returns the GPUs in CUDA_VISIBLE_DEVICES, else those of nvidia-smi."""
  if 'cpu' in os.environ.get('JAX_PLATFORMS', ''):
    return []
  visible = os.environ.get('CUDA_VISIBLE_DEVICES')
  if visible is not None:
    # CUDA ignores everything after an invalid name such as -1.
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
  """Returns the cores of this process; [] if the system cannot bind them."""
  if not hasattr(os, 'sched_getaffinity'):  # macOS.
    return []
  return [str(core) for core in sorted(os.sched_getaffinity(0))]


def _newest_checkpoint(workdir: str) -> int | None:
  """Returns the step of the newest complete checkpoint."""
  manifests = pathlib.Path(workdir, 'checkpoints').glob('*/manifest.json')
  names = [path.parent.name for path in manifests]
  return max((int(name) for name in names if name.isdigit()), default=None)


def _free_port() -> int:
  """Returns an unused port; if another program takes it, the run crashes."""
  with socket.socket() as probe:
    probe.bind(('localhost', 0))
    return probe.getsockname()[1]


if __name__ == '__main__':
  sys.exit(main())
