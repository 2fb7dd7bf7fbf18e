"""Runs an experiment or a sweep on a slice of Cloud TPU VMs.

  python -m launch.tpu_vm nth_farthest --preset=paper --tpu=v5e-16 \\
      --zone=us-west4-a --bucket=my-bucket --spot

Requests the slice as a queued resource, waits for it, copies the checkout to
all workers, sets them up, trains the runs one after another and deletes the
slice at the end, even after errors. If the machines are preempted, it requests
new ones. A preempted run is restarted from its checkpoint, a crashed one at
most --max_restarts times. Ctrl-C or SIGTERM saves a checkpoint and stops; a
second one deletes the slice immediately. If the launcher is killed the run
continues, and the same command finds it.

Needs gcloud, logged in. Several workers need its key in an SSH agent:
ssh-add ~/.ssh/google_compute_engine
"""

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from launch import job
from launch import processes
from launch import resources
from launch import tpu_commands
from launch import tpu_slice


def main(arguments: Sequence[str] | None = None) -> int:
  """Returns the exit code."""
  options, runs = job.parse(_parser(), arguments)
  _check(options, runs)
  gcloud = tpu_commands.Gcloud(options)
  if options.dry_run:
    print('\n'.join(plan(gcloud, runs)))
    return job.DONE
  if not shutil.which('gcloud'):
    job.fail(
      'gcloud was not found; install the Google Cloud CLI '
      '(cloud.google.com/sdk/docs/install) and log in: gcloud auth login'
    )
  if options.bucket:
    _check_bucket(gcloud)
  codes = tpu_slice.Slice(gcloud).run(runs)
  if options.sweep:
    processes.log_codes(codes)
  return next(filter(None, codes.values()), job.DONE)


def plan(gcloud: tpu_commands.Gcloud, runs: Sequence[job.Run]) -> Iterator[str]:
  """Yields the commands of a run without failures, line by line."""
  options = gcloud.options
  interval = f'every {tpu_slice.POLL_SECONDS:g} s'
  if options.bucket:
    yield '# Must print True:'
    yield shlex.join(gcloud.bucket())
  yield '# If the slice exists, it is used:'
  yield shlex.join(gcloud.describe())
  yield '# Else:'
  yield shlex.join(gcloud.create())
  yield f'# Until it is ACTIVE, {interval}:'
  yield shlex.join(gcloud.describe())
  yield f'# {gcloud.archive} holds all files that git does not ignore.'
  yield shlex.join(gcloud.send())
  yield shlex.join(gcloud.install())
  for run in runs:
    yield shlex.join(gcloud.train(run, 1))
    yield f'# Meanwhile, {interval}; if the machines are gone, delete the'
    yield '# slice, create it again and continue:'
    yield shlex.join(gcloud.describe())
    yield shlex.join(gcloud.describe_node())
  if not options.bucket:
    yield shlex.join(gcloud.fetch())
  if options.keep:
    yield '# To delete it later:'
    yield f'# {shlex.join(gcloud.delete())}'
  else:
    yield shlex.join(gcloud.delete())


def _check(options: argparse.Namespace, runs: Sequence[job.Run]) -> None:
  """Checks the options and sets the default of --name."""
  hosts = resources.TPUS[options.tpu].hosts
  if hosts > 1 and not options.bucket:
    job.fail(
      f'--tpu={options.tpu} has {hosts} hosts, which share no disk; give a '
      'Cloud Storage bucket for the workdirs with --bucket=NAME, or choose a '
      '--tpu with one host'
    )
  for run in runs:
    for flag in run.flags:
      name, _, value = flag.partition('=')
      path = pathlib.PurePosixPath(value)
      inside = path.parts[:1] == ('runs',) and '..' not in path.parts
      if name == '--workdir' and not inside:
        job.fail(
          f'--workdir={value} must be below runs/, in the bucket or on the '
          'worker'
        )
  if options.name is None:
    kind = options.preset or options.sweep
    words = [options.experiment, *[kind] * bool(kind), options.tpu]
    options.name = '-'.join(words).replace('_', '-').lower()
  if not re.fullmatch(r'[a-z]([-a-z0-9]{0,61}[a-z0-9])?', options.name):
    job.fail(
      f'--name={options.name} must have at most 63 lowercase letters, digits '
      'and dashes, with a letter first and no dash last'
    )


def _check_bucket(gcloud: tpu_commands.Gcloud) -> None:
  described = subprocess.run(
    gcloud.bucket(), stdout=subprocess.PIPE, text=True, check=False
  )
  bucket = gcloud.options.bucket
  if described.returncode:
    job.fail(f'--bucket={bucket} cannot be described; see the error above')
  if described.stdout.strip() != 'True':
    job.fail(
      f'--bucket={bucket} has no hierarchical namespace, without which '
      'checkpoint folders cannot be renamed; create another bucket: '
      'gcloud storage buckets create gs://NAME --location=REGION '
      '--uniform-bucket-level-access --enable-hierarchical-namespace'
    )


def _parser() -> job.Parser:
  parser = job.Parser('tpu_vm', __doc__)
  parser.add_argument(
    '--tpu',
    choices=resources.TPUS,
    metavar='TYPE',
    required=True,
    help=f'one of {", ".join(resources.TPUS)}',
  )
  parser.add_argument(
    '--zone', required=True, help='zone of the slice, such as us-west4-a'
  )
  parser.add_argument('--project', help="default: gcloud's")
  parser.add_argument(
    '--name',
    help='name of the slice; an existing one is used (default: '
    'EXPERIMENT-PRESET-TPU)',
  )
  parser.add_argument(
    '--bucket',
    help='Cloud Storage bucket with a hierarchical namespace for the workdirs. '
    'Without it they are on the only host, are copied here at the end and are '
    'lost if the machine is preempted',
  )
  parser.add_argument(
    '--spot', action='store_true', help='use cheaper, preemptible machines'
  )
  parser.add_argument(
    '--keep', action='store_true', help='do not delete the slice at the end'
  )
  parser.add_argument(
    '--gcloud',
    action='append',
    default=[],
    metavar='FLAG',
    help='any other flag of gcloud compute tpus queued-resources create, such '
    'as --gcloud=--reserved; repeatable',
  )
  parser.add_grace(300.0)
  return parser


if __name__ == '__main__':
  sys.exit(main())
