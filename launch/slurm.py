"""Submits an experiment to Slurm; a sweep becomes a job array.

  python -m launch.slurm nth_farthest --preset=paper --nodes=2 --gpus_per_node=8
  python -m launch.slurm nth_farthest --sweep=paper_grid --gpus_per_node=1

The job has one task for each GPU unless --processes_per_node is given. Before
the time limit and before a preemption all tasks save a checkpoint and exit; the
job is requeued and resumes. After a crash it is requeued at most --max_restarts
times. --dry_run prints the script that sbatch reads.
"""

import argparse
from collections.abc import Sequence
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

from launch import job

_LOGS = 'runs/slurm'


def main(arguments: Sequence[str] | None = None) -> int:
  """Returns the exit code."""
  options, runs = job.parse(_parser(), arguments)
  text = _script(options, runs)
  if options.dry_run:
    print(text, end='')
    return job.DONE
  if not shutil.which('sbatch'):
    job.fail('sbatch was not found; run this on a host that submits jobs')
  # The submitting host may lack the GPUs that the nodes have.
  needed = {'ACCELERATOR': 'cuda12'} if options.gpus_per_node else {}
  setup = subprocess.run(
    [job.ROOT / 'launch/setup.sh'], env=needed | os.environ, check=False
  )
  if setup.returncode:
    return setup.returncode
  pathlib.Path(_LOGS).mkdir(parents=True, exist_ok=True)
  return subprocess.run(
    ['sbatch'], input=text, text=True, check=False
  ).returncode


def _script(options: argparse.Namespace, runs: Sequence[job.Run]) -> str:
  """Returns the script of a job, or of an array with a task for each run."""
  folder = pathlib.Path.cwd()
  python = str(job.ROOT / '.venv/bin/python')
  cases = [
    f'  {index})\n    run=({shlex.join(run.command(python))})\n    ;;'
    for index, run in enumerate(runs)
  ]
  exports = [f'PYTHONPATH={job.ROOT}', job.large_pages()]
  if options.cpus_per_task:
    # srun does not inherit it from the job.
    exports.append(f'SRUN_CPUS_PER_TASK={options.cpus_per_task}')
  return _SCRIPT.format(
    directives='\n'.join(_directives(options, len(runs), folder)),
    folder=shlex.quote(str(folder)),
    exports='\n'.join(f'export {shlex.quote(export)}' for export in exports),
    cases='\n'.join(cases),
    max_restarts=options.max_restarts,
    logs=_LOGS,
    preempted=job.PREEMPTED,
    configuration_error=job.CONFIGURATION_ERROR,
    final=' | '.join(map(str, job.FINAL)),
  )


def _directives(
  options: argparse.Namespace, num_runs: int, folder: pathlib.Path
) -> list[str]:
  array = num_runs > 1
  limit = f'%{options.parallel}' if options.parallel else ''
  flags = {
    'job-name': options.experiment,
    'nodes': options.nodes,
    'ntasks-per-node': options.processes_per_node or options.gpus_per_node or 1,
    'cpus-per-task': options.cpus_per_task,
    'gpus-per-node': options.gpus_per_node,
    'time': options.time,
    'partition': options.partition,
    'account': options.account,
    'output': folder / _LOGS / ('%x-%A_%a.log' if array else '%x-%j.log'),
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
# of a run exit for the same reason, and --wait ends those that hang. The exit
# code of srun is the highest of the tasks'.
_SCRIPT = """\
#!/usr/bin/env bash
{directives}

set -u
cd {folder} || exit {configuration_error}
{exports}

case ${{SLURM_ARRAY_TASK_ID:-0}} in
{cases}
esac

ended_by_slurm=
trap 'ended_by_slurm=yes' TERM
srun --label --kill-on-bad-exit=0 --wait=60 "${{run[@]}}"
code=$?
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
    echo crash >>"$crashes"
    count=$(wc -l <"$crashes")
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
    '--gpus_per_node',
    'GPUs of each node (default: 0, which trains on the CPU)',
    minimum=0,
    default=0,
  )
  parser.add_integer(
    '--processes_per_node',
    'processes that share the GPUs of a node (default: one for each GPU)',
  )
  parser.add_integer('--cpus_per_task', 'cores of each process')
  add('--time', help='time limit, such as 1-00:00:00')
  add('--partition', help='partition to submit to')
  add('--account', help='account to charge')
  add(
    '--sbatch',
    action='append',
    default=[],
    metavar='FLAG',
    help='any other flag of sbatch, such as --sbatch=--constraint=a100; '
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
