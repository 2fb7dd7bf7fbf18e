"""Runs an experiment or a sweep on Kubernetes.

  python -m launch.kubernetes nth_farthest --preset=paper --image=IMAGE \\
      --claim=CLAIM --nodes=2 --gpus=8
  python -m launch.kubernetes nth_farthest --sweep=paper_grid --image=IMAGE \\
      --workdir=gs://BUCKET/grid --tpu=v5e-16

IMAGE is built from launch/Dockerfile. CLAIM is a PersistentVolumeClaim that all
pods of a run write to; it holds the workdirs, unless --workdir is in a bucket.
A run is a JobSet with one pod for each host. A preempted run resumes from its
checkpoint, a crashed one at most --max_restarts times. Without --tpu and --gpus
it trains on the CPU. --dry_run prints the manifests; pipe them to `kubectl
delete -f -` to delete the runs. Needs Kubernetes 1.29 and JobSet 0.10, or later
ones.
"""

import argparse
from collections.abc import Sequence
import hashlib
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

from launch import job
from launch import pod
from launch import resources

_PORT = 8476
# Kubernetes limits pod names to 63 letters and adds a suffix to the JobSet's.
_MAX_NAME = 63 - len('-host-999-9999-abcde')


def main(arguments: Sequence[str] | None = None) -> int:
  """Returns the exit code."""
  options, runs = job.parse(_parser(), arguments)
  _check(options)
  items = [_job_set(options, run) for run in runs]
  manifest = {'apiVersion': 'v1', 'kind': 'List', 'items': items}
  text = json.dumps(manifest, indent=2, ensure_ascii=False) + '\n'
  if options.dry_run:
    print(text, end='')
    return job.DONE
  # `kubectl apply` would not restart a run that has ended.
  return _kubectl(text, 'create', '--filename=-').returncode


def _job_set(options: argparse.Namespace, run: job.Run) -> dict:
  """Returns the JobSet of a run: one Job, or one for each slice."""
  name, tpu = _name(options, run), resources.TPUS.get(options.tpu)
  hosts = tpu.hosts if tpu else options.nodes or 1
  metadata = {
    'name': name,
    'namespace': options.namespace,
    'labels': {
      'app.kubernetes.io/name': 'rmc-jax',
      'kueue.x-k8s.io/queue-name': options.queue,
      'kueue.x-k8s.io/priority-class': options.priority,
    },
  }
  if tpu and hosts > 1:
    # A node pool is one slice; without this, two runs may share two slices.
    topology = 'alpha.jobset.sigs.k8s.io/exclusive-topology'
    metadata['annotations'] = {topology: 'cloud.google.com/gke-nodepool'}
  command = _command(options, run, hosts, f'{name}-host-0-0.{name}:{_PORT}')
  spec = {
    # If a host disappears, the other pods crash before its own pod counts as
    # disrupted. So a Job tolerates the crashes of all pods but one.
    'backoffLimit': hosts - 1,
    'completions': hosts,
    'parallelism': hosts,
    'completionMode': 'Indexed',
    'podFailurePolicy': _pod_failure_policy(),
    'template': pod.template(options, command),
  }
  jobs = {
    'name': 'host',
    'replicas': options.slices,
    'template': _job_template(options, name, spec),
  }
  return {
    'apiVersion': 'jobset.x-k8s.io/v1alpha2',
    'kind': 'JobSet',
    'metadata': _without_empty(metadata),
    'spec': {
      'failurePolicy': _failure_policy(options.max_restarts),
      'replicatedJobs': [jobs],
    },
  }


def _command(
  options: argparse.Namespace, run: job.Run, hosts: int, coordinator: str
) -> list[str]:
  """Returns the trainer's command line, in which pods expand $(NAME)."""
  run = run._replace(flags=(job.LONG_INITIALIZATION_TIMEOUT, *run.flags))
  flags = []
  # JAX finds the rank by itself on TPUs; elsewhere only with access to the API.
  if hosts > 1 and not options.tpu:
    flags += job.rank_flags(coordinator, hosts, '$(JOB_COMPLETION_INDEX)')
  elif not options.tpu:
    flags.append('--cluster=none')
  return [*map(pod.literal, run.command('python')), *flags]


def _pod_failure_policy() -> dict:
  """Returns the policy of a Job, by which only crashes count as failures.

  It fails at once if a pod is disrupted or exits with 75, 76 or 77.
  """
  codes = {
    'containerName': pod.CONTAINER,
    'operator': 'In',
    'values': [job.PREEMPTED, job.DIVERGED, job.CONFIGURATION_ERROR],
  }
  disrupted = {'type': 'DisruptionTarget', 'status': 'True'}
  return {
    'rules': [
      {'action': 'FailJob', 'onExitCodes': codes},
      {'action': 'FailJob', 'onPodConditions': [disrupted]},
    ]
  }


def _failure_policy(max_restarts: int) -> dict:
  """Returns the policy of a JobSet, which restarts all Jobs if one fails."""
  # Kubernetes forms the message in pkg/controller/job/pod_failure_policy.go.
  final = f'failed with exit code ({job.DIVERGED}|{job.CONFIGURATION_ERROR}) '
  rules = [
    {
      'name': 'final',
      'action': 'FailJobSet',
      'onJobFailureMessagePatterns': [final],
    },
    {
      'name': 'disrupted',
      'action': 'RestartJobSetAndIgnoreMaxRestarts',
      'onJobFailureReasons': ['PodFailurePolicy'],
    },
  ]
  return {'maxRestarts': max_restarts, 'rules': rules}


def _job_template(options: argparse.Namespace, name: str, spec: dict) -> dict:
  """Returns the Jobs' template; kubectl applies --patch without a cluster."""
  manifest = _without_empty(
    {
      'apiVersion': 'batch/v1',
      'kind': 'Job',
      'metadata': {'name': name},  # kubectl needs one.
      'spec': spec,
    }
  )
  for path in options.patch:
    try:
      text = pathlib.Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
      job.fail(f'--patch={path} is not a readable file: {error}')
    # A list is a JSON patch; the type of other patches is strategic.
    is_list = re.match(r'(\s|#.*|---\s)*(\[|-\s)', text)
    patched = _kubectl(
      json.dumps(manifest),
      *('patch', '--local', '--filename=-', '--output=json'),
      f'--patch-file={path}',
      f'--type={"json" if is_list else "strategic"}',
      capture_output=True,
    )
    if patched.returncode:
      job.fail(f'--patch={path} does not fit the Job: {patched.stderr.strip()}')
    manifest = json.loads(patched.stdout)
  del manifest['metadata']['name']  # The JobSet names its Jobs.
  return {k: manifest[k] for k in ('metadata', 'spec') if manifest[k]}


def _kubectl(
  text: str, *arguments: str, **options: Any
) -> subprocess.CompletedProcess[str]:
  try:
    return subprocess.run(
      ['kubectl', *arguments], input=text, text=True, check=False, **options
    )
  except FileNotFoundError:
    job.fail('kubectl was not found; install it')


def _without_empty(value: Any) -> Any:
  """Returns a value without the fields that are None or empty."""
  if isinstance(value, dict):
    fields = {name: _without_empty(field) for name, field in value.items()}
    return {k: v for k, v in fields.items() if v not in (None, {}, [])}
  if isinstance(value, list):
    return [_without_empty(field) for field in value]
  return value


def _name(options: argparse.Namespace, run: job.Run) -> str:
  """Returns a valid name for the run, with a digest if it was changed."""
  base = options.name or '_'.join(
    filter(None, (options.experiment, options.preset or options.sweep))
  )
  full = f'{base}_{run.name}' if run.name else base
  name = re.sub('[^a-z0-9]+', '-', full.lower()).strip('-')
  if name == full.replace('_', '-') and len(name) <= _MAX_NAME:
    return name
  digest = hashlib.sha256(full.encode()).hexdigest()[:8]
  return f'{name[: _MAX_NAME - 9].rstrip("-")}-{digest}'


def _check(options: argparse.Namespace) -> None:
  if options.tpu and (options.gpus or options.gpu_type or options.nodes):
    job.fail(
      f'--tpu={options.tpu} sets the number of hosts and their chips; remove '
      '--nodes, --gpus and --gpu_type'
    )
  if options.gpu_type and not options.gpus:
    job.fail(
      f'--gpu_type={options.gpu_type} needs --gpus, the number for each pod'
    )
  several = options.tpu and resources.TPUS[options.tpu].hosts > 1
  if options.slices > 1 and not several:
    job.fail(
      f'--slices={options.slices} needs slices of several hosts, such as '
      '--tpu=v5e-16; remove --slices or change --tpu'
    )
  if job.in_bucket(options.workdir):
    return
  if not options.claim:
    job.fail(
      'the run would be lost with its pods; give --claim=CLAIM, the '
      'PersistentVolumeClaim of the workdirs, or --workdir=gs://BUCKET/FOLDER'
    )
  workdir = pathlib.PurePosixPath(pod.VOLUME, options.workdir or '')
  if not workdir.is_relative_to(pod.VOLUME) or '..' in workdir.parts:
    job.fail(
      f'--workdir={options.workdir} would be lost with its pod; use a path '
      f'below {pod.VOLUME}, where the claim is mounted, a relative path, or '
      'gs://BUCKET/FOLDER'
    )


def _parser() -> job.Parser:
  parser = job.Parser('kubernetes', __doc__)
  parser.add_env()
  add = parser.add_argument
  label = job.matching(
    '[a-z]([a-z0-9-]{0,61}[a-z0-9])?',
    'at most 63 lowercase letters, digits and dashes, with a letter first',
  )
  key = '[A-Za-z0-9][A-Za-z0-9./_-]*'
  add('--image', required=True, help='image to run')
  add(
    '--claim',
    type=label,
    help='PersistentVolumeClaim of the workdirs and data; ReadWriteMany for '
    'several pods; needed unless --workdir is in a bucket',
  )
  add(
    '--tpu',
    choices=resources.TPUS,
    metavar='TYPE',
    help=f'TPU slice, one of {", ".join(resources.TPUS)}',
  )
  parser.add_integer('--slices', 'TPU slices of a run (default: 1)', default=1)
  parser.add_integer('--nodes', 'pods of a run without --tpu (default: 1)')
  parser.add_integer('--gpus', 'GPUs of each pod (default: none)')
  add(
    '--gpu_type',
    help="GKE's name of the GPU, such as nvidia-h100-80gb (default: any)",
  )
  parser.add_integer('--cpus', 'cores of each pod')
  add(
    '--memory',
    type=job.matching(r'[1-9]\d*[KMGT]i', 'a size such as 64Gi'),
    help='memory of each pod, such as 64Gi',
  )
  add(
    '--spot',
    action='store_true',
    help="run on GKE's spot nodes, which by default leave 15 s for saving",
  )
  parser.add_pairs(
    '--node_selector', key, 'LABEL=VALUE', 'label of the nodes to run on'
  )
  parser.add_pairs(
    '--pod_annotation', key, 'KEY=VALUE', 'annotation of the pods'
  )
  add(
    '--patch',
    action='append',
    default=[],
    metavar='FILE',
    help='change of the Job, applied by kubectl: a strategic merge patch or, '
    'if it is a list, a JSON patch; YAML or JSON; repeatable',
  )
  add('--namespace', type=label, help="default: kubectl's")
  add(
    '--name',
    type=label,
    help="name of the run, or prefix of a sweep's runs (default: experiment "
    'and preset or sweep)',
  )
  add(
    '--service_account',
    type=label,
    help='existing service account of the pods, for example to write to a '
    "bucket (default: the namespace's)",
  )
  add('--queue', type=label, help='LocalQueue of Kueue')
  add('--priority', type=label, help='WorkloadPriorityClass of Kueue')
  parser.add_integer(
    '--grace',
    'seconds for saving before a pod is killed (default: 120)',
    default=120,
  )
  return parser


if __name__ == '__main__':
  sys.exit(main())
