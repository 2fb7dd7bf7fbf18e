"""Runs an experiment or a sweep on Kubernetes.

  python -m launch.kubernetes nth_farthest --preset=paper --image=IMAGE \\
      --claim=CLAIM --nodes=2 --gpus=8
  python -m launch.kubernetes nth_farthest --sweep=paper_grid --image=IMAGE \\
      --workdir=gs://BUCKET/grid --tpu=v5e-16

IMAGE is built from launch/Dockerfile. CLAIM is a PersistentVolumeClaim that all
pods of a run write to; it holds the workdirs, unless --workdir is in a bucket.
A run is a JobSet with one pod for each host or, with --kind=job, an Indexed
Job, for clusters without JobSet. A preempted run resumes from its checkpoint, a
crashed one at most --max_restarts times. Without --tpu and --gpus it trains on
the CPU. --dry_run prints the manifests; pipe them to `kubectl delete -f -` to
delete the runs. Needs Kubernetes 1.29 and JobSet 0.10, or later.
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
  items = [item for run in runs for item in _manifests(options, run)]
  manifest = {'apiVersion': 'v1', 'kind': 'List', 'items': items}
  text = json.dumps(manifest, indent=2, ensure_ascii=False) + '\n'
  if options.dry_run:
    print(text, end='')
    return job.DONE
  # `kubectl apply` would not restart a run that has ended.
  return _kubectl(text, 'create', '--filename=-').returncode


def _manifests(options: argparse.Namespace, run: job.Run) -> list[dict]:
  """Returns the objects of one run."""
  name, is_job_set = _name(options, run), options.kind == 'jobset'
  tpu = resources.TPUS.get(options.tpu)
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
  first_pod = f'{name}-host-0-0' if is_job_set else f'{name}-0'
  command = _command(options, run, hosts, f'{first_pod}.{name}:{_PORT}')
  # A JobSet restarts a Job that fails; a Job replaces pods that it ignores.
  policy = _pod_failure_policy('FailJob' if is_job_set else 'Ignore')
  spec = {
    'completions': hosts,
    'parallelism': hosts,
    'completionMode': 'Indexed',
    'podFailurePolicy': policy,
    'template': pod.template(options, command),
  }
  if is_job_set:
    return [_job_set(options, metadata, spec)]
  # Each pod counts its own crashes. A pod that restarts before the others have
  # exited may crash again, so the restarts may be used up sooner.
  limits = {'backoffLimitPerIndex': options.max_restarts, 'maxFailedIndexes': 0}
  if hosts == 1:
    return [_job(options, metadata, limits | spec)]
  spec['template']['spec']['subdomain'] = name
  return [_service(metadata), _job(options, metadata, limits | spec)]


def _command(
  options: argparse.Namespace, run: job.Run, hosts: int, coordinator: str
) -> list[str]:
  """Returns the trainer's command line, in which pods expand $(NAME)."""
  flags = []
  if hosts > 1:
    flags.append(f'--initialization_timeout={options.initialization_timeout}')
  # JAX finds the rank by itself on TPUs; elsewhere only with access to the API.
  if hosts > 1 and not options.tpu:
    flags += job.rank_flags(coordinator, hosts, '$(JOB_COMPLETION_INDEX)')
  elif not options.tpu:
    flags.append('--cluster=none')
  return [*map(pod.literal, run.command('python')), *flags]


def _pod_failure_policy(action: str) -> dict:
  """Returns the policy of a Job, with the action for disrupted pods."""

  def exits(*codes: int) -> dict:
    return {'containerName': pod.CONTAINER, 'operator': 'In', 'values': codes}

  final = exits(job.DIVERGED, job.CONFIGURATION_ERROR)
  disrupted = {'type': 'DisruptionTarget', 'status': 'True'}
  return {
    'rules': [
      {'action': 'FailJob', 'onExitCodes': final},
      {'action': action, 'onExitCodes': exits(job.PREEMPTED)},
      {'action': action, 'onPodConditions': [disrupted]},
    ]
  }


def _job_set(options: argparse.Namespace, metadata: dict, spec: dict) -> dict:
  """Returns a JobSet of one Job, or of one for each slice."""
  if options.tpu and spec['completions'] > 1:
    # A node pool is one slice; without this, two runs may share two slices.
    topology = 'alpha.jobset.sigs.k8s.io/exclusive-topology'
    metadata['annotations'] = {topology: 'cloud.google.com/gke-nodepool'}
  # If a host disappears, the other pods crash before its own pod counts as
  # disrupted. So a Job tolerates the crashes of all pods but one.
  spec = {'backoffLimit': spec['completions'] - 1} | spec
  manifest = _job(options, {'name': metadata['name']}, spec)
  del manifest['metadata']['name']  # The JobSet names its Jobs.
  template = {k: manifest[k] for k in ('metadata', 'spec') if manifest[k]}
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
  jobs = {'name': 'host', 'replicas': options.slices, 'template': template}
  return {
    'apiVersion': 'jobset.x-k8s.io/v1alpha2',
    'kind': 'JobSet',
    'metadata': _without_empty(metadata),
    'spec': {
      'failurePolicy': {'maxRestarts': options.max_restarts, 'rules': rules},
      'replicatedJobs': [jobs],
    },
  }


def _service(metadata: dict) -> dict:
  """Returns a service that gives the pods of a Job their host names."""
  spec = {
    'clusterIP': 'None',
    'publishNotReadyAddresses': True,
    'selector': {'batch.kubernetes.io/job-name': metadata['name']},
  }
  return _without_empty(
    {'apiVersion': 'v1', 'kind': 'Service', 'metadata': metadata, 'spec': spec}
  )


def _job(options: argparse.Namespace, metadata: dict, spec: dict) -> dict:
  """Returns a Job, to which kubectl applies --patch without a cluster."""
  manifest = _without_empty(
    {
      'apiVersion': 'batch/v1',
      'kind': 'Job',
      'metadata': metadata,
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
  return manifest


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
  if options.slices > 1 and not (several and options.kind == 'jobset'):
    job.fail(
      f'--slices={options.slices} needs slices of several hosts, such as '
      '--tpu=v5e-16, in a JobSet; remove --slices or change --tpu and --kind'
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
  parser.add_cluster_flags()
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
  add(
    '--kind',
    choices=('jobset', 'job'),
    default='jobset',
    help='job: for a cluster without JobSet (default: jobset)',
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
