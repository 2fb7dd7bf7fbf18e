"""Submits an experiment to Slurm; a sweep becomes a job array.

  python -m launch.slurm nth_farthest --preset=paper --nodes=2 --gpus_per_node=8
  python -m launch.slurm nth_farthest --sweep=paper_grid --gpus_per_node=1

The job has one task for each GPU unless --processes_per_node is given. Before
the time limit and before a preemption all tasks save a checkpoint and exit; the
job is requeued and resumes. After a crash it is requeued at most --max_restarts
times without a newer checkpoint. With --min_nodes it also runs on fewer nodes
than --nodes, with the same global batch. --dry_run prints the script that
sbatch reads.
"""

import argparse
from collections.abc import Sequence
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from launch import job

_LOGS = 'runs/slurm'


def main(arguments: Sequence[str] | None = None) -> int:
  """Returns the exit code."""
  options, runs = job.parse(_parser(), arguments)
  if not options.dry_run:
    if not shutil.which('sbatch'):
      job.fail('sbatch was not found; run this on a host that submits jobs')
    # The submitting host may lack the GPUs that the nodes have.
    needed = {'ACCELERATOR': 'cuda12'} if options.gpus_per_node else {}
    setup = subprocess.run(
      [job.ROOT / 'launch/setup.sh'], env=needed | os.environ, check=False
    )
    if setup.returncode:
      return setup.returncode
  text = _script(options, runs)
  if options.dry_run:
    print(text, end='')
    return job.DONE
  pathlib.Path(_LOGS).mkdir(parents=True, exist_ok=True)
  return subprocess.run(
    ['sbatch'], input=text, text=True, check=False
  ).returncode


def _script(options: argparse.Namespace, runs: Sequence[job.Run]) -> str:
  """Returns the script of a job, or of an array with a task for each run."""
  folder = pathlib.Path.cwd()
  python = str(job.ROOT / '.venv/bin/python')
  tasks = options.processes_per_node or options.gpus_per_node or 1
  cpus = options.cpus_per_task or _cpus_per_task(options, tasks)
  counts = [options.nodes]
  exports = [f'PYTHONPATH={job.ROOT}', job.large_pages()]
  if options.min_nodes:
    counts = _node_counts(options, runs, python, options.gpus_per_node or tasks)
    # A single process would have several, which may not divide the batch.
    exports.append('JAX_NUM_CPU_DEVICES=1')
  cases = [
    f'  {index})\n    workdir={shlex.quote(run.workdir)}\n'
    f'    run=({shlex.join(run.command(python))})\n    ;;'
    for index, run in enumerate(runs)
  ]
  return _SCRIPT.format(
    directives='\n'.join(_directives(options, tasks, cpus, len(runs))),
    folder=shlex.quote(str(folder)),
    task=shlex.quote(str(job.ROOT / 'launch/slurm_task.sh')),
    exports='\n'.join(f'export {shlex.quote(export)}' for export in exports),
    cases='\n'.join(cases),
    counts=' '.join(map(str, counts)),
    tasks=tasks,
    # srun does not inherit the cores from the job.
    srun=shlex.join(
      ['--label', *([f'--cpus-per-task={cpus}'] if cpus else [])]
      + options.srun_arg
    ),
    max_restarts=options.max_restarts,
    logs=_LOGS,
    preempted=job.PREEMPTED,
    configuration_error=job.CONFIGURATION_ERROR,
    final=' | '.join(map(str, job.FINAL)),
  )


def _cpus_per_task(options: argparse.Namespace, tasks: int) -> int | None:
  """Returns a task's share of the smallest node that has the GPUs of the job.

  None if there is no such node in the partition, or no Slurm here.
  """
  shares = []
  for line in _nodes(options.partition):
    partition, cpus, limit, resources = line.split()
    cpus = min(int(count) for count in (cpus, limit) if count.isdigit())
    # Such as gpu:2 or gpu:a100:4(S:0-1).
    gpus = sum(map(int, re.findall(r'\bgpu:(?:[^:,(]+:)?(\d+)', resources)))
    wanted = options.gpus_per_node
    if wanted <= gpus and (options.partition or partition.endswith('*')):
      share = cpus * wanted // gpus if wanted else cpus
      shares.append(max(1, share // tasks))
  if not shares:
    job.log(
      '--cpus_per_task is not given, and sinfo shows no node with '
      f'--gpus_per_node={options.gpus_per_node} in the partition, so Slurm '
      'gives each task its default, often one core'
    )
  return min(shares, default=None)


def _nodes(partition: str | None) -> list[str]:
  """Returns a line for each kind of node in a partition; None: in all."""
  command = ['sinfo', '--noheader', '--exact', '--format=%P %c %B %G']
  if partition:
    command.append(f'--partition={partition}')
  if not shutil.which('sinfo'):
    return []
  listed = subprocess.run(command, capture_output=True, text=True, check=False)
  return listed.stdout.splitlines()


def _node_counts(
  options: argparse.Namespace,
  runs: Sequence[job.Run],
  python: str,
  devices: int,
) -> list[int]:
  """Returns the numbers of nodes to run on, the largest first.

  Args:
    devices: of a node.
  """
  batch = math.gcd(*(_batch_size(run, python) for run in runs))
  counts = [
    count
    for count in range(options.nodes, 0, -1)
    if batch % (count * devices) == 0
  ]
  for flag in ('nodes', 'min_nodes'):
    value = getattr(options, flag)
    if value not in counts:
      known = ', '.join(map(str, counts)) or 'none'
      job.fail(
        f'argument --{flag}: expected a number of nodes up to '
        f'--nodes={options.nodes} whose devices, {devices} each, divide the '
        f'global batch of {batch}: {known}; got {value}'
      )
  return [count for count in counts if count >= options.min_nodes]


def _batch_size(run: job.Run, python: str) -> int:
  """Returns the number that the devices of a run must divide."""
  if not os.path.exists(python):
    job.fail('argument --min_nodes: run launch/setup.sh before a dry run')
  shown = subprocess.run(
    run.command(python, '--print_config'),
    env=os.environ | {'PYTHONPATH': str(job.ROOT)},
    stdout=subprocess.PIPE,
    text=True,
  )
  if shown.returncode:
    sys.exit(shown.returncode)  # It has printed the reason.
  config = json.loads(shown.stdout)['config']
  if 'restarts' in config:
    job.fail(
      f'argument --min_nodes: {run.experiment} has no global batch, as it '
      'trains independent models; remove the flag'
    )
  names = ('batch_size', 'eval_batch_size')
  return math.gcd(*(config[name] for name in names if name in config))


def _directives(
  options: argparse.Namespace,
  tasks: int,
  cpus: int | None,
  num_runs: int,
) -> list[str]:
  array = num_runs > 1
  limit = f'%{options.parallel}' if options.parallel else ''
  size = {
    'nodes': options.nodes,
    'ntasks-per-node': tasks,
    'cpus-per-task': cpus,
  }
  if options.min_nodes:
    # With a number of tasks Slurm would not give more nodes than these need.
    size = {
      'nodes': f'{options.min_nodes}-{options.nodes}',
      'mincpus': tasks * (cpus or 1),
    }
  flags = size | {
    'job-name': options.experiment,
    'gpus-per-node': options.gpus_per_node,
    'time': options.time,
    'partition': options.partition,
    'exclude': options.exclude,
    'account': options.account,
    'output': f'{_LOGS}/%x-%A_%a.log' if array else f'{_LOGS}/%x-%j.log',
    'open-mode': 'append',
    # Only to the tasks: the script must outlive them to read their exit code.
    'signal': f'TERM@{options.grace}',
    'array': f'0-{num_runs - 1}{limit}' if array else None,
  }
  words = [f'--{name}={value}' for name, value in flags.items() if value]
  return [f'#SBATCH {word}' for word in [*words, '--requeue', *options.sbatch]]


# If Slurm itself ends the job (scancel, requeue, preemption), it signals the
# script too and decides alone whether to requeue. --kill-on-bad-exit=0 because
# a killed task would report a signal instead of its own exit code: all trainers
# of a run exit for the same reason, and --wait ends those that hang.
_SCRIPT = """\
#!/usr/bin/env bash
{directives}

set -u
cd {folder} || exit {configuration_error}
{exports}

case ${{SLURM_ARRAY_TASK_ID:-0}} in
{cases}
esac

counts=({counts})
for nodes in "${{counts[@]}}"; do
  if [ "$nodes" -le "$SLURM_JOB_NUM_NODES" ]; then break; fi
done

ended_by_slurm=
trap 'ended_by_slurm=yes' TERM
srun {srun} --kill-on-bad-exit=0 --wait=60 \\
  --nodes="$nodes" --ntasks-per-node={tasks} \\
  {task} "${{run[@]}}"
code=$?
case $code in
  201 | 202) code=$((code - 125)) ;; # See launch/slurm_task.sh.
esac
if [ -n "$ended_by_slurm" ]; then exit "$code"; fi

job=$SLURM_JOB_ID
if [ -n "${{SLURM_ARRAY_JOB_ID:-}}" ]; then
  # For the first task of an array, SLURM_JOB_ID alone names the whole array.
  job=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
fi
crashes={logs}/$job.crashes
case $code in
  {final})
    rm -f "$crashes"
    exit "$code"
    ;;
  {preempted}) echo 'preempted; requeued' ;;
  *)
    newest=$(
      printf '%s\\n' "$workdir"/checkpoints/[0-9]*/manifest.json |
        sort -V | tail -n 1
    )
    # Without the file, on a full disk, it would be requeued without limit.
    echo "$newest" >>"$crashes" || exit "$code"
    count=$(grep -cxF -e "$newest" "$crashes")
    if [ "$count" -gt {max_restarts} ]; then
      rm -f "$crashes"
      exit "$code"
    fi
    echo "exit code $code; requeued, restart $count of {max_restarts}"
    ;;
esac
scontrol requeue "$job"
exit "$code"
"""


def _parser() -> job.Parser:
  parser = job.Parser('slurm', __doc__)
  add = parser.add_argument
  parser.add_integer('--nodes', 'nodes of a run (default: 1)', default=1)
  parser.add_integer(
    '--min_nodes',
    'nodes with which a run may start (default: --nodes); it then uses the '
    'largest number of its nodes that divides the global batch',
  )
  parser.add_integer(
    '--gpus_per_node',
    'GPUs of each node (default: 0, which trains on the CPU)',
    minimum=0,
    default=0,
  )
  parser.add_integer(
    '--processes_per_node',
    'processes that share the GPUs of a node (default: one for each GPU)',
  )
  parser.add_integer(
    '--cpus_per_task',
    'cores of each process (default: its share of the smallest node of the '
    'partition, if sinfo shows one)',
  )
  add('--time', help='time limit, such as 1-00:00:00')
  add('--partition', help='partition to submit to')
  add('--account', help='account to charge')
  add('--exclude', metavar='NODES', help='nodes not to run on')
  add(
    '--sbatch',
    action='append',
    default=[],
    metavar='FLAG',
    help='any other flag of sbatch, such as --sbatch=--constraint=a100; '
    'repeatable',
  )
  add(
    '--srun_arg',
    action='append',
    default=[],
    metavar='FLAG',
    help='any other flag of srun, such as --srun_arg=--container-image=IMAGE; '
    'repeatable',
  )
  parser.add_integer(
    '--parallel', 'runs of a sweep at the same time (default: all)'
  )
  parser.add_integer(
    '--grace',
    'seconds before the time limit in which to save (default: 120)',
    default=120,
  )
  return parser


if __name__ == '__main__':
  sys.exit(main())
