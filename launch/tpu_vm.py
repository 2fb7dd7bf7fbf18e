"""Runs an experiment, or a sweep run by run, on a slice of Cloud TPU VMs.

  python -m launch.tpu_vm nth_farthest --preset=paper --tpu=v5e-16 \\
      --zone=us-west4-a --bucket=my-bucket --spot

Asks for the slice as a queued resource, waits for it, copies the checkout to
all workers, sets up, trains, and deletes the slice at the end, however that
comes. Machines that were taken away are asked for again, and what ended
preempted is started again, for free; what crashes too, --max_restarts times.
Ctrl-C or SIGTERM stops the trainers with a checkpoint first; a second one
deletes at once. A launcher that was killed leaves all running, and the same
command finds it.

Needs gcloud, logged in. For several workers it wants its key in an agent:
ssh-add ~/.ssh/google_compute_engine.
"""

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
import pathlib
import re
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
      'there is no gcloud here; install the Google Cloud CLI '
      '(cloud.google.com/sdk/docs/install) and log in: gcloud auth login'
    )
  if options.bucket:
    _check_bucket(gcloud)
  codes = tpu_slice.Slice(gcloud).run(runs)
  if options.sweep:
    for name, code in codes.items():
      job.say(f'{name}: {processes.describe(code)}')
  return next((code for code in codes.values() if code != job.DONE), job.DONE)


def plan(gcloud: tpu_commands.Gcloud, runs: Sequence[job.Run]) -> Iterator[str]:
  """What a run without accidents does, line by line."""
  options = gcloud.options
  often = f'every {tpu_slice.POLL_SECONDS:g} s'
  if options.bucket:
    yield '# Must be True.'
    yield job.shell(gcloud.bucket())
  yield '# Is there one of this name? Then it is used.'
  yield job.shell(gcloud.describe())
  yield '# Else:'
  yield job.shell(gcloud.create())
  yield f'# Until it is ACTIVE, {often}:'
  yield job.shell(gcloud.describe())
  yield f'# {gcloud.archive}: all files that git does not ignore.'
  yield job.shell(gcloud.send())
  yield job.shell(gcloud.install())
  for run in runs:
    yield job.shell(gcloud.train(run, 1))
    yield f'# Meanwhile, {often}; where the machines were'
    yield '# taken away: delete, create and go on from there.'
    yield job.shell(gcloud.describe())
    yield job.shell(gcloud.describe_node())
  if not options.bucket:
    yield job.shell(gcloud.fetch())
  if options.keep:
    yield '# To delete it later:'
    yield f'# {job.shell(gcloud.delete())}'
  else:
    yield job.shell(gcloud.delete())


def _check(options: argparse.Namespace, runs: Sequence[job.Run]) -> None:
  """Refuses what cannot work, and fills in the name."""
  if options.tpu not in resources.TPUS:
    job.fail(
      f'there is no --tpu={options.tpu}; there are: {", ".join(resources.TPUS)}'
    )
  hosts = resources.TPUS[options.tpu].hosts
  if hosts > 1 and not options.bucket:
    job.fail(
      f'{options.tpu} has {hosts} hosts, which share no disk: give '
      '--bucket=NAME, a bucket of Cloud Storage for the folders of runs, or '
      'choose a --tpu of one host'
    )
  for run in runs:
    for flag in run.flags:
      name, _, value = flag.partition('=')
      path = pathlib.PurePosixPath(value)
      inside = path.parts[:1] == ('runs',) and '..' not in path.parts
      if name == '--workdir' and not inside:
        job.fail(
          '--workdir is below runs/, in the bucket or on the worker; got '
          f'{value!r}'
        )
  if options.name is None:
    kind = options.preset or options.sweep
    words = [options.experiment, *[kind] * bool(kind), options.tpu]
    options.name = '-'.join(words).replace('_', '-').lower()
  if not re.fullmatch(r'[a-z]([-a-z0-9]{0,61}[a-z0-9])?', options.name):
    job.fail(
      '--name has small letters, digits and -, at most 63, the first a '
      f'letter and the last no -; got {options.name!r}'
    )


def _check_bucket(gcloud: tpu_commands.Gcloud) -> None:
  shown = subprocess.run(
    gcloud.bucket(), stdout=subprocess.PIPE, text=True, check=False
  )
  bucket = gcloud.options.bucket
  if shown.returncode:
    job.fail(f'the bucket {bucket!r} cannot be seen; the reason is above')
  if shown.stdout.strip() != 'True':
    job.fail(
      f'the bucket {bucket!r} has no hierarchical namespace, so its folders '
      'cannot be renamed as a checkpoint is when it is whole; make another: '
      'gcloud storage buckets create gs://NAME --location=REGION '
      '--uniform-bucket-level-access --enable-hierarchical-namespace'
    )


def _parser() -> argparse.ArgumentParser:
  parser = job.parser('tpu_vm', __doc__ or '')
  parser.add_argument(
    '--tpu', required=True, help=f'one of {", ".join(resources.TPUS)}'
  )
  parser.add_argument(
    '--zone', required=True, help='one that has them, such as us-west4-a'
  )
  parser.add_argument('--project', help="default: gcloud's")
  parser.add_argument(
    '--name',
    help='of the slice; one that is there is used (default: '
    'EXPERIMENT-PRESET-TPU)',
  )
  parser.add_argument(
    '--bucket',
    help='of Cloud Storage, with a hierarchical namespace: the folders of '
    'runs are in it. Without one they are on the only host and are copied '
    'here at the end, and lost where the machine is taken away',
  )
  parser.add_argument(
    '--spot',
    action='store_true',
    help='cheaper machines, which may be taken away at any time',
  )
  parser.add_argument(
    '--keep', action='store_true', help='do not delete the slice at the end'
  )
  parser.add_argument(
    '--gcloud',
    action='append',
    default=[],
    metavar='FLAG',
    help='any other flag of gcloud compute tpus queued-resources create, as '
    'in --gcloud=--reserved',
  )
  parser.add_argument(
    '--grace',
    type=float,
    default=300.0,
    help='seconds for the other workers when one has failed (default: 300)',
  )
  return parser


if __name__ == '__main__':
  sys.exit(main())
