"""Runs an experiment or a sweep on Kubernetes.

  python -m launch.kubernetes nth_farthest --preset=paper --image=IMAGE \\
      --claim=CLAIM --nodes=2 --gpus=8
  python -m launch.kubernetes nth_farthest --sweep=paper_grid --image=IMAGE \\
      --claim=CLAIM --tpu=v5e-16

IMAGE is built from launch/Dockerfile. CLAIM is the PersistentVolumeClaim that
holds the workdirs; all pods of a run write to it. A run is a JobSet with one
pod for each host or, with --kind=job, an Indexed Job, for clusters without
JobSet. A preempted run resumes from its checkpoint, a crashed one at most
--max_restarts times. Without --tpu and --gpus it trains on the CPU. --dry_run
prints the manifests; pipe them to `kubectl delete -f -` to delete the runs.
Needs Kubernetes 1.29 or later.
"""

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
from typing import Any

from launch import job
from launch import resources

_VOLUME = '/claim'
_PORT = 8476
# Group of the user in launch/Dockerfile.
GROUP = 1000
# Kubernetes limits pod names to 63 letters and adds a suffix to the JobSet's.
_MAX_NAME = 63 - len('-host-0-9999-abcde')


def main(arguments: Sequence[str] | None = None) -> int:
  """Returns the exit code."""
  options, runs = job.parse(_parser(), arguments)
  _check(options)
  text = '---\n'.join(_manifests(options, run) for run in runs)
  if options.dry_run:
    print(text, end='')
    return job.DONE
  if not shutil.which('kubectl'):
    job.fail('kubectl was not found; install it, or use --dry_run')
  # `kubectl apply` would not restart a run that has ended.
  return subprocess.run(
    ['kubectl', 'create', '--filename=-'], input=text, text=True, check=False
  ).returncode


# A crash of one pod crashes the others. With backoffLimit 0 the Job fails at
# the first of these crashes, so the JobSet counts one and restarts all pods.
_JOB_SET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
{metadata}
spec:
  failurePolicy:
    maxRestarts: {max_restarts}
    rules:
      - name: final
        action: FailJobSet
        onJobFailureReasons: [PodFailurePolicy]
  replicatedJobs:
    - name: host
      template:
        spec:
          backoffLimit: 0
{job_spec}
"""
# Here each pod counts its own crashes. A pod that restarts before the others
# have exited may crash again, so the restarts may be used up sooner.
_INDEXED_JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
{metadata}
spec:
  backoffLimitPerIndex: {max_restarts}
  maxFailedIndexes: 0
{job_spec}
"""
# Gives the pods of an Indexed Job their host names; a JobSet brings its own.
_SERVICE = """\
apiVersion: v1
kind: Service
metadata:
{metadata}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    batch.kubernetes.io/job-name: "{name}"
---
"""
_JOB_SPEC = """\
completions: {hosts}
parallelism: {hosts}
completionMode: Indexed
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes: {{containerName: trainer, operator: In, values: {final}}}
    - action: Ignore
      onExitCodes: {{containerName: trainer, operator: In, values: {preempted}}}
    - action: Ignore
      onPodConditions: [{{type: DisruptionTarget, status: "True"}}]
template:
  spec:
    restartPolicy: Never
    terminationGracePeriodSeconds: {grace}
    # Pods get their rank by flags and need no access to the cluster's API.
    automountServiceAccountToken: false
    securityContext:
      fsGroup: {group}
      fsGroupChangePolicy: OnRootMismatch
{pod}
    containers:
      - name: trainer
        workingDir: {volume}
{container}"""


def _manifests(options: argparse.Namespace, run: job.Run) -> str:
  """Returns the YAML documents of one run."""
  tpu = resources.TPUS.get(options.tpu)
  hosts = tpu.hosts if tpu else options.nodes or 1
  name, is_job_set = _name(options, run), options.kind == 'jobset'
  needs_service = hosts > 1 and not is_job_set
  metadata = _yaml(
    2,
    name=name,
    namespace=options.namespace,
    labels={
      'app.kubernetes.io/name': 'rmc-jax',
      'kueue.x-k8s.io/queue-name': options.queue,
    },
    annotations={
      # A node pool is one slice; without this, two runs may share two slices.
      'alpha.jobset.sigs.k8s.io/exclusive-topology': (
        'cloud.google.com/gke-nodepool'
        if is_job_set and tpu and hosts > 1
        else None
      )
    },
  )
  first_pod = f'{name}-host-0-0' if is_job_set else f'{name}-0'
  # Kubernetes expands $(NAME), and $$ to $.
  command = [word.replace('$', '$$') for word in run.command('python')]
  # JAX finds the rank by itself on TPUs; elsewhere only with access to the API.
  if hosts > 1 and not tpu:
    address = f'{first_pod}.{name}:{_PORT}'
    command += job.rank_flags(address, hosts, '$(JOB_COMPLETION_INDEX)')
  elif not tpu:
    command.append('--cluster=none')
  job_spec = _JOB_SPEC.format(
    hosts=hosts,
    final=[job.DIVERGED, job.CONFIGURATION_ERROR],
    preempted=[job.PREEMPTED],
    grace=options.grace,
    group=GROUP,
    volume=_VOLUME,
    pod=_pod(options, subdomain=name if needs_service else None),
    container=_container(options, command),
  )
  template = _JOB_SET if is_job_set else _INDEXED_JOB
  return (_SERVICE * needs_service + template).format(
    metadata=metadata,
    name=name,
    max_restarts=options.max_restarts,
    job_spec=textwrap.indent(job_spec, ' ' * (10 if is_job_set else 2)),
  )


def _pod(options: argparse.Namespace, subdomain: str | None) -> str:
  """Returns the fields of a pod that depend on the flags."""
  volumes: list[dict[str, Any]] = [
    {'name': 'claim', 'persistentVolumeClaim': {'claimName': options.claim}}
  ]
  if options.gpus:
    # NCCL needs more shared memory than the default of 64 MiB.
    volumes.append({'name': 'shm', 'emptyDir': {'medium': 'Memory'}})
  tpu = resources.TPUS.get(options.tpu)
  # Taints that such nodes usually have.
  taints = {
    'google.com/tpu': options.tpu,
    'nvidia.com/gpu': options.gpus,
    'cloud.google.com/gke-spot': options.spot,
  }
  return _yaml(
    4,
    subdomain=subdomain,
    serviceAccountName=options.service_account,
    nodeSelector={
      'cloud.google.com/gke-tpu-accelerator': tpu and tpu.gke_accelerator,
      'cloud.google.com/gke-tpu-topology': tpu and tpu.topology,
      'cloud.google.com/gke-accelerator': options.gpu_type or None,
      'cloud.google.com/gke-spot': 'true' if options.spot else None,
      **dict(label.split('=', 1) for label in options.node_selector),
    },
    tolerations=[
      {'key': key, 'operator': 'Exists', 'effect': 'NoSchedule'}
      for key, requested in taints.items()
      if requested
    ],
    volumes=volumes,
  )


def _container(options: argparse.Namespace, command: Sequence[str]) -> str:
  """Returns the fields of the container that depend on the flags."""
  mounts = {'claim': _VOLUME} | ({'shm': '/dev/shm'} if options.gpus else {})
  on_cpu = not (options.tpu or options.gpus)
  variable, _, value = job.large_pages().partition('=')
  limits = {
    'cpu': options.cpus,
    'memory': options.memory,
    'nvidia.com/gpu': options.gpus,
    'google.com/tpu': options.tpu and resources.TPUS[options.tpu].chips,
  }
  limits = {key: str(limit) for key, limit in limits.items() if limit}
  return _yaml(
    8,
    image=options.image,
    command=command,
    volumeMounts=[
      {'name': name, 'mountPath': path} for name, path in mounts.items()
    ],
    # The devices of TPUs may belong to root.
    securityContext={'runAsUser': 0} if options.tpu else None,
    env=[{'name': variable, 'value': value}] if on_cpu else None,
    resources={'limits': limits} if limits else None,
  )


def _yaml(indent: int, **fields: Any) -> str:
  """Returns the fields that are not empty, one in a line; JSON is YAML."""
  lines = []
  for name, value in fields.items():
    if isinstance(value, dict):
      value = {k: v for k, v in value.items() if v is not None}
    if value:
      text = json.dumps(value, ensure_ascii=False)
      lines.append(f'{" " * indent}{name}: {text}')
  return '\n'.join(lines)


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
  workdir = pathlib.PurePosixPath(_VOLUME, options.workdir or '')
  if not workdir.is_relative_to(_VOLUME) or '..' in workdir.parts:
    job.fail(
      f'--workdir={options.workdir} would be lost with its pod; use a path '
      f'below {_VOLUME}, where the claim is mounted, or a relative path'
    )


def _parser() -> job.Parser:
  parser = job.Parser('kubernetes', __doc__)
  add = parser.add_argument
  label = _matching(
    '[a-z]([a-z0-9-]{0,61}[a-z0-9])?',
    'at most 63 lowercase letters, digits and dashes, with a letter first',
  )
  add('--image', required=True, help='image to run')
  add(
    '--claim',
    type=label,
    required=True,
    help='PersistentVolumeClaim of the workdirs; ReadWriteMany for several '
    'pods',
  )
  add(
    '--tpu',
    choices=resources.TPUS,
    metavar='TYPE',
    help=f'TPU slice, one of {", ".join(resources.TPUS)}',
  )
  parser.add_integer('--nodes', 'pods of a run without --tpu (default: 1)')
  parser.add_integer('--gpus', 'GPUs of each pod (default: none)')
  add(
    '--gpu_type',
    help="GKE's name of the GPU, such as nvidia-h100-80gb (default: any)",
  )
  parser.add_integer('--cpus', 'cores of each pod')
  add(
    '--memory',
    type=_matching(r'[1-9]\d*[KMGT]i', 'a size such as 64Gi'),
    help='memory of each pod, such as 64Gi',
  )
  add(
    '--spot',
    action='store_true',
    help="run on GKE's spot nodes, which by default leave 15 s for saving",
  )
  add(
    '--node_selector',
    type=_matching('[A-Za-z0-9][A-Za-z0-9./_-]*=.*', 'LABEL=VALUE'),
    action='append',
    default=[],
    metavar='LABEL=VALUE',
    help='label of the nodes to run on; repeatable',
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
  parser.add_integer(
    '--grace',
    'seconds for saving before a pod is killed (default: 120)',
    default=120,
  )
  return parser


def _matching(pattern: str, expected: str) -> Callable[[str], str]:
  """Returns the type of a flag whose text matches `pattern`."""

  def convert(text: str) -> str:
    if not re.fullmatch(pattern, text):
      raise argparse.ArgumentTypeError(f'expected {expected}, got {text!r}')
    return text

  return convert


if __name__ == '__main__':
  sys.exit(main())
