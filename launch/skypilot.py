"""Runs an experiment or a sweep on machines of any cloud, with SkyPilot.

  python -m launch.skypilot nth_farthest --preset=paper --tpu=v5e-16 --spot \\
      --bucket=gs://my-runs
  python -m launch.skypilot nth_farthest --preset=paper --gpus=A100:8 \\
      --nodes=2 --bucket=gs://my-runs

Each run is a managed job: SkyPilot finds machines, copies the checkout, trains
with one process per machine, and deletes the machines at the end. It replaces
machines that are preempted, which save nothing, so the run resumes from its
newest checkpoint. The workdirs are in --bucket. --dry_run prints the tasks.

Needs SkyPilot 0.12 or later, logged in: pip install 'skypilot[gcp]'.
"""

import argparse
from collections.abc import Sequence
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from launch import job
from launch import resources

_PORT = 8476


def main(arguments: Sequence[str] | None = None) -> int:
  """Returns the exit code, that of the first run that was refused."""
  options, runs = job.parse(_parser(), arguments)
  _check(options)
  tasks = [task(options, run) for run in runs]
  if options.dry_run:
    print('---\n'.join(tasks), end='')
    return job.DONE
  if not shutil.which('sky'):
    job.fail("sky was not found; install it: pip install 'skypilot[gcp]'")
  codes = [_launch(text, options.sky) for text in tasks]
  return next(filter(None, codes), job.DONE)


# A run that was preempted and saved is restarted without limit. SkyPilot does
# not distinguish other codes: 76 and 77 are restarted too, in vain.
_TASK = """\
name: {name}
workdir: {checkout}
num_nodes: {nodes}
envs: {variables}
resources:
  infra: {infra}
  {accelerators}
  use_spot: {spot}
  job_recovery:
    recover_on_exit_codes: [{preempted}]
    max_restarts_on_errors: {max_restarts}
file_mounts:
  # The data are read from this folder; the workdir is written directly.
  /bucket:
    source: {bucket}
    mode: MOUNT
# The machines have uv, and a Python that may be too old.
setup: |
  set -e
  uv=$HOME/.local/bin/uv
  "$uv" python install 3.12
  PYTHON=$("$uv" python find --system 3.12) launch/setup.sh
run: |
  set -u
  checkout=$PWD
{flags}
  cd /bucket || exit {error}
  exec "$checkout/launch/train.sh" {command} "${{flags[@]}}"
"""
# JAX finds the machines of a TPU slice by itself.
_TPU_FLAGS = '  flags=()'
_GPU_FLAGS = """\
  flags=(--cluster=none)
  if [ "$SKYPILOT_NUM_NODES" -gt 1 ]; then
    flags+=(
      "--coordinator_address=$(head -n 1 <<<"$SKYPILOT_NODE_IPS"):{port}"
      "--num_processes=$SKYPILOT_NUM_NODES"
      "--process_id=$SKYPILOT_NODE_RANK"
    )
  fi"""


def task(options: argparse.Namespace, run: job.Run) -> str:
  """Returns the SkyPilot task of a run, as YAML."""
  parts = (options.experiment, options.preset or options.sweep, run.name)
  flags = [flag for flag in run.flags if not flag.startswith('--workdir=')]
  flags = [
    job.LONG_INITIALIZATION_TIMEOUT,
    *flags,
    f'--workdir={_workdir(options, run)}',
  ]
  accelerators = f'accelerators: {options.gpus}'
  if options.tpu:
    tpu = resources.TPUS[options.tpu]
    accelerators = (
      f'accelerators: tpu-{tpu.accelerator_type}\n'
      f'  accelerator_args: {{runtime_version: {tpu.runtime}}}'
    )
  return _TASK.format(
    name=re.sub('[^a-z0-9]+', '-', '-'.join(filter(None, parts)).lower()),
    checkout=json.dumps(str(job.ROOT)),
    nodes=options.nodes or 1,
    variables=json.dumps(dict(options.env), ensure_ascii=False),
    infra=options.infra or ('gcp' if options.tpu else 'null'),
    accelerators=accelerators,
    spot=json.dumps(options.spot),
    preempted=job.PREEMPTED,
    error=job.CONFIGURATION_ERROR,
    max_restarts=options.max_restarts,
    bucket=json.dumps(options.bucket),
    flags=_TPU_FLAGS if options.tpu else _GPU_FLAGS.format(port=_PORT),
    command=shlex.join([run.experiment, *flags]),
  )


def _workdir(options: argparse.Namespace, run: job.Run) -> str:
  """Returns the workdir, by default the trainer's, in the bucket."""
  if job.in_bucket(run.workdir):
    return run.workdir
  return f'{options.bucket.rstrip("/")}/{run.workdir}'


def _launch(text: str, flags: Sequence[str]) -> int:
  """Submits a task; returns the exit code of SkyPilot."""
  with tempfile.NamedTemporaryFile('w', suffix='.yaml') as file:
    file.write(text)
    file.flush()
    command = ['sky', 'jobs', 'launch', file.name, '--yes', '--detach-run']
    return subprocess.run([*command, *flags], check=False).returncode


def _check(options: argparse.Namespace) -> None:
  if (options.tpu is None) == (options.gpus is None):
    job.fail('give either --tpu or --gpus, such as --tpu=v5e-8, --gpus=A100:8')
  if options.tpu and options.nodes:
    job.fail(f'--tpu={options.tpu} sets the number of hosts; remove --nodes')
  workdir = pathlib.PurePosixPath(options.workdir or '')
  if workdir.is_absolute() or '..' in workdir.parts:
    job.fail(
      f'--workdir={options.workdir} would be lost with its machine; use a path '
      'relative to --bucket, or gs://BUCKET/FOLDER'
    )


def _parser() -> job.Parser:
  parser = job.Parser('skypilot', __doc__)
  parser.add_env()
  add = parser.add_argument
  add(
    '--bucket',
    type=job.matching('(gs|s3)://.+', 'gs://BUCKET or s3://BUCKET'),
    required=True,
    help='bucket of the workdirs and data, such as gs://my-runs',
  )
  tpus = [name for name, tpu in resources.TPUS.items() if tpu.runtime]
  add(
    '--tpu',
    choices=tpus,
    metavar='TYPE',
    help=f'TPU slice, one of {", ".join(tpus)}',
  )
  add('--gpus', help='GPUs of a machine, such as A100:8')
  parser.add_integer('--nodes', 'machines of a run with --gpus (default: 1)')
  add(
    '--infra',
    help='cloud, region or zone, such as gcp/us-west4/us-west4-a (default: '
    'gcp with --tpu, otherwise the cheapest)',
  )
  add('--spot', action='store_true', help='use cheaper, preemptible machines')
  add(
    '--sky',
    action='append',
    default=[],
    metavar='FLAG',
    help='any other flag of sky jobs launch, such as --sky=--priority=900; '
    'repeatable',
  )
  return parser


if __name__ == '__main__':
  sys.exit(main())
