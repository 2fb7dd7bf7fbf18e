"""Submits an experiment, or a sweep as a job array, to Slurm.

  python -m launch.slurm nth_farthest --preset=paper --nodes=2 --gpus_per_node=8
  python -m launch.slurm nth_farthest --sweep=paper_grid --gpus_per_node=1

The job is one task for each GPU unless --processes_per_node says otherwise. Its
script, which --dry_run prints, is what sbatch reads. Before the time limit and
before a preemption all tasks save and leave; the job is queued again and goes
on from there. After a crash it is too, --max_restarts times.
"""

import argparse
from collections.abc import Sequence
import os
import pathlib
import shutil
import subprocess
import sys

from launch import job

_LOGS = 'runs/slurm'


def main(arguments: Sequence[str] | None = None) -> int:
  """Returns the exit code."""
  options, runs = job.parse(_parser(), arguments)
  text = script(options, runs, pathlib.Path.cwd())
  if options.dry_run:
    print(text, end='')
    return job.DONE
  if not shutil.which('sbatch'):
    job.fail('there is no sbatch here; run this where jobs are submitted')
  # Nodes may have what the machine that submits has not.
  environment = dict(os.environ)
  if options.gpus_per_node:
    environment.setdefault('ACCELERATOR', 'cuda12')
  set_up = subprocess.run(
    [job.ROOT / 'launch/setup.sh'], env=environment, check=False
  )
  if set_up.returncode:
    return set_up.returncode
  pathlib.Path(_LOGS).mkdir(parents=True, exist_ok=True)
  return subprocess.run(
    ['sbatch'], input=text, text=True, check=False
  ).returncode


def script(
  options: argparse.Namespace, runs: Sequence[job.Run], folder: pathlib.Path
) -> str:
  """What sbatch reads: one job, or one array with a task for each run.

  Args:
    options: of this launcher.
    runs: each becomes the same script with another command.
    folder: where it is submitted from; relative workdirs are below it.
  """
  python = str(job.ROOT / '.venv/bin/python')
  lines = ['#!/usr/bin/env bash', *_directives(options, runs, folder)]
  lines += [
    '',
    'set -u',
    f'cd {job.shell([str(folder)])} || exit {job.CONFIGURATION_ERROR}',
    f'export PYTHONPATH={job.shell([str(job.ROOT)])}',
    *(f'export {job.shell([words])}' for words in job.large_pages()),
  ]
  if options.cpus_per_task:
    # srun does not take it from the job.
    lines.append(f'export SRUN_CPUS_PER_TASK={options.cpus_per_task}')
  lines += [
    '',
    'case ${SLURM_ARRAY_TASK_ID:-0} in',
  ]
  for index, run in enumerate(runs):
    command = job.shell(run.command(python))
    lines += [f'  {index})', f'    run=({command})', '    ;;']
  body = _BODY.format(
    max_restarts=options.max_restarts,
    logs=_LOGS,
    preempted=job.PREEMPTED,
    over=f'{job.DONE} | {job.DIVERGED} | {job.CONFIGURATION_ERROR}',
  )
  lines += ['esac', '', body]
  return '\n'.join(lines)


def _directives(
  options: argparse.Namespace, runs: Sequence[job.Run], folder: pathlib.Path
) -> list[str]:
  tasks = options.processes_per_node or max(1, options.gpus_per_node)
  array = len(runs) > 1
  asked = {
    'job-name': options.experiment,
    'nodes': options.nodes,
    'ntasks-per-node': tasks,
    'cpus-per-task': options.cpus_per_task,
    'gpus-per-node': options.gpus_per_node,
    'time': options.time,
    'partition': options.partition,
    'account': options.account,
    'output': folder / _LOGS / ('%x-%A_%a.log' if array else '%x-%j.log'),
    'open-mode': 'append',
    # To the tasks only: the script must be there to see how they end.
    'signal': f'TERM@{options.grace}',
  }
  if array:
    side_by_side = f'%{options.parallel}' if options.parallel else ''
    asked['array'] = f'0-{len(runs) - 1}{side_by_side}'
  words = [f'--{name}={value}' for name, value in asked.items() if value]
  return [f'#SBATCH {word}' for word in [*words, '--requeue', *options.sbatch]]


# Where Slurm itself ends the job (scancel, requeue, preemption), it signals the
# script too, and decides alone whether the job comes back. A task that ends
# does not end the others, whose codes would then be of a signal: all trainers
# of a run come to the same end, and who does not has a minute. srun ends with
# the largest of their codes.
_BODY = """\
ended_by_slurm=
trap 'ended_by_slurm=yes' TERM
srun --label --kill-on-bad-exit=0 --wait=60 "${{run[@]}}"
code=$?
if [ -n "$ended_by_slurm" ]; then exit "$code"; fi

job=$SLURM_JOB_ID
if [ -n "${{SLURM_ARRAY_JOB_ID:-}}" ]; then
  # Of the first task of an array the number alone means all of them.
  job=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
fi
crashes={logs}/$job.crashes
case $code in
  {over})
    rm -f "$crashes"
    exit "$code"
    ;;
  {preempted}) echo 'preempted: queued again' ;;
  *)
    echo crash >>"$crashes"
    count=$(wc -l <"$crashes")
    if [ "$count" -gt {max_restarts} ]; then
      rm -f "$crashes"
      exit "$code"
    fi
    echo "exit code $code: queued again, restart $count of {max_restarts}"
    ;;
esac
scontrol requeue "$job"
exit "$code"
"""


def _parser() -> argparse.ArgumentParser:
  parser = job.parser('slurm', __doc__ or '')
  parser.add_argument(
    '--nodes', type=job.number('nodes', 1), default=1, help='default: 1'
  )
  parser.add_argument(
    '--gpus_per_node',
    type=job.number('gpus_per_node', 0),
    default=0,
    help='default: 0, the CPU',
  )
  parser.add_argument(
    '--processes_per_node',
    type=job.number('processes_per_node', 1),
    help='they divide the GPUs of a node (default: one for each GPU, or one)',
  )
  parser.add_argument(
    '--cpus_per_task',
    type=job.number('cpus_per_task', 1),
    help='cores of a process',
  )
  parser.add_argument('--time', help="as sbatch's, such as 1-00:00:00")
  parser.add_argument('--partition', help="as sbatch's")
  parser.add_argument('--account', help="as sbatch's")
  parser.add_argument(
    '--sbatch',
    action='append',
    default=[],
    metavar='FLAG',
    help='any other flag of sbatch, as in --sbatch=--constraint=a100',
  )
  parser.add_argument(
    '--parallel',
    type=job.number('parallel', 1),
    help='runs of a sweep side by side at most (default: all)',
  )
  parser.add_argument(
    '--grace',
    type=job.number('grace', 1),
    default=120,
    help='seconds before the time limit for saving (default: 120)',
  )
  return parser


if __name__ == '__main__':
  sys.exit(main())
