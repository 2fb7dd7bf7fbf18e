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
  text = manifests(options, runs)
  if options.dry_run:
    print(text, end='')
    return job.DONE
  if not shutil.which('kubectl'):
    job.fail('kubectl was not found; install it, or use --dry_run')
  # `kubectl apply` would not restart a run that has ended.
  return subprocess.run(
    ['kubectl', 'create', '--filename=-'], input=text, text=True, check=False
  ).returncode


def manifests(options: argparse.Namespace, runs: Sequence[job.Run]) -> str:
  """Returns the manifests of all runs as YAML documents."""
  return '---\n'.join(_manifests(options, run) for run in runs)


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
  name, hosts = _name(options, run), _hosts(options)
  is_job_set = options.kind == 'jobset'
  labels = {'app.kubernetes.io/name': 'rmc-jax'}
  if options.queue:
    labels['kueue.x-k8s.io/queue-name'] = options.queue
  annotations = {}
  if is_job_set and options.tpu and hosts > 1:
    # A node pool is one slice; without this, two runs may share two slices.
    key = 'alpha.jobset.sigs.k8s.io/exclusive-topology'
    annotations[key] = 'cloud.google.com/gke-nodepool'
  metadata = _yaml(
    2,
    name=name,
    namespace=options.namespace,
    labels=labels,
    annotations=annotations,
  )
  needs_service = not is_job_set and hosts > 1
  volumes, mounts = _volumes(options)
  first_pod = f'{name}-host-0-0' if is_job_set else f'{name}-0'
  # Kubernetes expands $(NAME), and $$ to $.
  command = [word.replace('$', '$$') for word in run.command('python')]
  command += _distributed_flags(options, f'{first_pod}.{name}:{_PORT}')
  job_spec = _JOB_SPEC.format(
    hosts=hosts,
    final=[job.DIVERGED, job.CONFIGURATION_ERROR],
    preempted=[job.PREEMPTED],
    grace=options.grace,
    group=GROUP,
    volume=_VOLUME,
    pod=_yaml(
      4,
      subdomain=name if needs_service else None,
      serviceAccountName=options.service_account,
      nodeSelector=_node_selector(options),
      tolerations=_tolerations(options),
      volumes=volumes,
    ),
    container=_yaml(
      8,
      image=options.image,
      command=command,
      volumeMounts=mounts,
      **_container_resources(options),
    ),
  )
  template = _JOB_SET if is_job_set else _INDEXED_JOB
  if needs_service:
    template = _SERVICE + template
  return template.format(
    metadata=metadata,
    name=name,
    max_restarts=options.max_restarts,
    job_spec=textwrap.indent(job_spec, ' ' * (10 if is_job_set else 2)),
  )


def _yaml(indent: int, **fields: Any) -> str:
  """Returns the fields that are not empty, one in a line; JSON is YAML."""
  return '\n'.join(
    f'{" " * indent}{key}: {json.dumps(value, ensure_ascii=False)}'
    for key, value in fields.items()
    if value
  )


def _volumes(
  options: argparse.Namespace,
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
  """Returns the volumes of a pod and where they are mounted."""
  claim = {'claimName': options.claim}
  volumes: list[dict[str, Any]]
  volumes = [{'name': 'claim', 'persistentVolumeClaim': claim}]
  mounts = [{'name': 'claim', 'mountPath': _VOLUME}]
  if options.gpus:
    # NCCL needs more shared memory than the default of 64 MiB.
    volumes.append({'name': 'shm', 'emptyDir': {'medium': 'Memory'}})
    mounts.append({'name': 'shm', 'mountPath': '/dev/shm'})
  return volumes, mounts


def _container_resources(options: argparse.Namespace) -> dict[str, Any]:
  """Returns the fields of the container that depend on its accelerators."""
  fields: dict[str, Any] = {}
  limits = {
    'cpu': options.cpus,
    'memory': options.memory,
    'nvidia.com/gpu': options.gpus,
  }
  if options.tpu:
    limits['google.com/tpu'] = resources.TPUS[options.tpu].chips
    # The devices of TPUs may belong to root.
    fields['securityContext'] = {'runAsUser': 0}
  elif not options.gpus:
    name, _, value = job.large_pages().partition('=')
    fields['env'] = [{'name': name, 'value': value}]
  if limits := {key: str(limit) for key, limit in limits.items() if limit}:
    fields['resources'] = {'limits': limits}
  return fields


def _distributed_flags(
  options: argparse.Namespace, coordinator: str
) -> list[str]:
  """Returns the flags that give a process its rank.

  JAX can find it out by itself, but only with access to the cluster's API. On
  TPUs it needs neither.
  """
  if options.tpu:
    return []
  if _hosts(options) == 1:
    return ['--cluster=none']
  return [
    f'--coordinator_address={coordinator}',
    f'--num_processes={_hosts(options)}',
    '--process_id=$(JOB_COMPLETION_INDEX)',
  ]


def _hosts(options: argparse.Namespace) -> int:
  if options.tpu:
    return resources.TPUS[options.tpu].hosts
  return options.nodes or 1


def _node_selector(options: argparse.Namespace) -> dict[str, str]:
  selector = {}
  if options.tpu:
    tpu = resources.TPUS[options.tpu]
    selector['cloud.google.com/gke-tpu-accelerator'] = tpu.gke_accelerator
    selector['cloud.google.com/gke-tpu-topology'] = tpu.topology
  if options.gpu_type:
    selector['cloud.google.com/gke-accelerator'] = options.gpu_type
  if options.spot:
    selector['cloud.google.com/gke-spot'] = 'true'
  return selector | dict(options.node_selector)


def _tolerations(options: argparse.Namespace) -> list[dict[str, str]]:
  """Returns tolerations of the taints that such nodes usually have."""
  taints = {
    'google.com/tpu': options.tpu,
    'nvidia.com/gpu': options.gpus,
    'cloud.google.com/gke-spot': options.spot,
  }
  return [
    {'key': key, 'operator': 'Exists', 'effect': 'NoSchedule'}
    for key, requested in taints.items()
    if requested
  ]


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
  label = _matching(
    '[a-z]([a-z0-9-]{0,61}[a-z0-9])?',
    'at most 63 lowercase letters, digits and dashes, with a letter first',
  )
  parser.add_argument('--image', required=True, help='image to run')
  parser.add_argument(
    '--claim',
    type=label,
    required=True,
    help='PersistentVolumeClaim of the workdirs; ReadWriteMany for several '
    'pods',
  )
  parser.add_argument(
    '--tpu',
    choices=resources.TPUS,
    metavar='TYPE',
    help=f'TPU slice, one of {", ".join(resources.TPUS)}',
  )
  parser.add_integer('--nodes', 'pods of a run without --tpu (default: 1)')
  parser.add_integer('--gpus', 'GPUs of each pod (default: none)')
  parser.add_argument(
    '--gpu_type',
    help="GKE's name of the GPU, such as nvidia-h100-80gb (default: any)",
  )
  parser.add_integer('--cpus', 'cores of each pod')
  parser.add_argument(
    '--memory',
    type=_matching(r'[1-9]\d*[KMGT]i', 'a size such as 64Gi'),
    help='memory of each pod, such as 64Gi',
  )
  parser.add_argument(
    '--spot',
    action='store_true',
    help="run on GKE's spot nodes, which by default leave 15 s for saving",
  )
  parser.add_argument(
    '--node_selector',
    type=_node_label,
    action='append',
    default=[],
    metavar='LABEL=VALUE',
    help='label of the nodes to run on; repeatable',
  )
  parser.add_argument(
    '--kind',
    choices=('jobset', 'job'),
    default='jobset',
    help='job: for a cluster without JobSet (default: jobset)',
  )
  parser.add_argument('--namespace', type=label, help="default: kubectl's")
  parser.add_argument(
    '--name',
    type=label,
    help="name of the run, or prefix of a sweep's runs (default: experiment "
    'and preset or sweep)',
  )
  parser.add_argument(
    '--service_account',
    type=label,
    help='existing service account of the pods, for example to write to a '
    "bucket (default: the namespace's)",
  )
  parser.add_argument('--queue', type=label, help='LocalQueue of Kueue')
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


def _node_label(text: str) -> tuple[str, str]:
  _matching('[A-Za-z0-9][A-Za-z0-9./_-]*=.*', 'LABEL=VALUE')(text)
  key, _, value = text.partition('=')
  return key, value


if __name__ == '__main__':
  sys.exit(main())
