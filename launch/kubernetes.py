"""Runs an experiment, or every run of a sweep, on Kubernetes.

  python -m launch.kubernetes nth_farthest --preset=paper --image=IMAGE \\
      --claim=CLAIM --nodes=2 --gpus=8
  python -m launch.kubernetes nth_farthest --sweep=paper_grid --image=IMAGE \\
      --claim=CLAIM --tpu=v5e-16

IMAGE is built from launch/Dockerfile. CLAIM, a PersistentVolumeClaim, keeps the
workdirs; where a run has several pods, all of them write to it at once. A run
is a JobSet of one pod for each host, or with --kind=job a plain Job, for
clusters without JobSets. What is preempted goes on from its checkpoint; what
crashes does so --max_restarts times. With neither --tpu nor --gpus it trains on
the CPU. --dry_run prints the manifests; piped to `kubectl delete -f -` they end
the runs. Needs Kubernetes 1.29 or later.
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
from typing import Any

from launch import job
from launch import resources

_VOLUME = '/claim'
_PORT = 8476
# Of the user in launch/Dockerfile.
GROUP = 1000
# What is left of a name once the pod has its place and its random letters.
_MOST_LETTERS = 63 - len('-host-0-9999-abcde')

_Manifest = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
  """Returns the exit code."""
  options, runs = job.parse(_parser(), arguments)
  _check(options)
  text = manifests(options, runs)
  if options.dry_run:
    print(text, end='')
    return job.DONE
  if not shutil.which('kubectl'):
    job.fail('there is no kubectl here; install it, or see --dry_run')
  # Not `apply`: of a run that has ended it would say "unchanged", and start
  # nothing.
  return subprocess.run(
    ['kubectl', 'create', '--filename=-'], input=text, text=True, check=False
  ).returncode


def manifests(options: argparse.Namespace, runs: Sequence[job.Run]) -> str:
  """What kubectl reads: the objects of each run."""
  return '---\n'.join(
    '\n'.join(_yaml(manifest)) + '\n'
    for run in runs
    for manifest in _objects(options, run)
  )


def _objects(options: argparse.Namespace, run: job.Run) -> list[_Manifest]:
  name = _name(options, run)
  labels = {'app.kubernetes.io/name': 'rmc-jax'}
  if options.queue:
    labels['kueue.x-k8s.io/queue-name'] = options.queue
  metadata = {'name': name, 'labels': labels}
  if options.namespace:
    metadata['namespace'] = options.namespace
  if options.kind == 'job':
    return _job(options, run, metadata)
  return [_job_set(options, run, metadata)]


def _job_set(
  options: argparse.Namespace, run: job.Run, metadata: _Manifest
) -> _Manifest:
  """A crash of one pod takes the others with it, so each counts once for all.

  With no retry the Job fails at the first pod that crashes, and the JobSet,
  which makes all pods anew, counts Jobs.
  """
  if options.tpu and _hosts(options) > 1:
    # A node pool is a slice; without this two runs may each get half of two.
    key = 'alpha.jobset.sigs.k8s.io/exclusive-topology'
    metadata['annotations'] = {key: 'cloud.google.com/gke-nodepool'}
  name = metadata['name']
  return {
    'apiVersion': 'jobset.x-k8s.io/v1alpha2',
    'kind': 'JobSet',
    'metadata': metadata,
    'spec': {
      'failurePolicy': {
        'maxRestarts': options.max_restarts,
        'rules': [
          {
            'name': 'over',
            'action': 'FailJobSet',
            'onJobFailureReasons': ['PodFailurePolicy'],
          }
        ],
      },
      'replicatedJobs': [
        {
          'name': 'host',
          'template': {
            'spec': {
              'backoffLimit': 0,
              **_pods(options, run, f'{name}-host-0-0.{name}'),
            }
          },
        }
      ],
    },
  }


def _job(
  options: argparse.Namespace, run: job.Run, metadata: _Manifest
) -> list[_Manifest]:
  """A Job, and where it has several pods the Service that gives them names.

  A crash that takes all pods with it is one failure of each, so each has its
  own count. One that is back before the others are gone may fail again: the
  budget can be spent sooner than that of a JobSet.
  """
  name = metadata['name']
  pods = _pods(options, run, f'{name}-0.{name}')
  result = {
    'apiVersion': 'batch/v1',
    'kind': 'Job',
    'metadata': metadata,
    'spec': {
      'backoffLimitPerIndex': options.max_restarts,
      'maxFailedIndexes': 0,
      **pods,
    },
  }
  if _hosts(options) == 1:
    return [result]
  pods['template']['spec']['subdomain'] = name
  service = {
    'apiVersion': 'v1',
    'kind': 'Service',
    'metadata': metadata,
    'spec': {
      'clusterIP': 'None',
      'publishNotReadyAddresses': True,
      'selector': {'batch.kubernetes.io/job-name': name},
    },
  }
  return [service, result]


def _pods(
  options: argparse.Namespace, run: job.Run, first_host: str
) -> _Manifest:
  """The part of a Job that does not depend on who restarts it.

  Args:
    options: of this launcher.
    run: what each pod runs a process of.
    first_host: where the others find the first pod.
  """
  hosts = _hosts(options)
  command = [
    # Kubernetes replaces $(NAME), and reads $$ as $.
    word.replace('$', '$$')
    for word in run.command('python')
  ] + _place(options, first_host)
  container = {
    'name': 'trainer',
    'image': options.image,
    'command': command,
    'workingDir': _VOLUME,
    'volumeMounts': [{'name': 'claim', 'mountPath': _VOLUME}],
  }
  volumes = [
    {'name': 'claim', 'persistentVolumeClaim': {'claimName': options.claim}}
  ]
  if options.tpu:
    # TPUs are devices, which may be root's; an image for them needs no other.
    container['securityContext'] = {'runAsUser': 0}
  elif options.gpus:
    # NCCL passes data through it; the usual 64 MiB are too few.
    container['volumeMounts'].append({'name': 'shm', 'mountPath': '/dev/shm'})
    volumes.append({'name': 'shm', 'emptyDir': {'medium': 'Memory'}})
  else:
    settings = (setting.partition('=') for setting in job.large_pages())
    container['env'] = [
      {'name': name, 'value': value} for name, _, value in settings
    ]
  if limits := _limits(options):
    container['resources'] = {'limits': limits}
  pod = {
    'restartPolicy': 'Never',
    'terminationGracePeriodSeconds': options.grace,
    # Pods learn from their command which they are, and ask the cluster for
    # nothing.
    'automountServiceAccountToken': False,
    'securityContext': {
      'fsGroup': GROUP,
      'fsGroupChangePolicy': 'OnRootMismatch',
    },
    'containers': [container],
    'volumes': volumes,
  }
  if options.service_account:
    pod['serviceAccountName'] = options.service_account
  if selector := _node_selector(options):
    pod['nodeSelector'] = selector
  if tolerations := _tolerations(options):
    pod['tolerations'] = tolerations
  return {
    'completions': hosts,
    'parallelism': hosts,
    'completionMode': 'Indexed',
    'podFailurePolicy': {
      'rules': [
        _on_exit('FailJob', job.DIVERGED, job.CONFIGURATION_ERROR),
        _on_exit('Ignore', job.PREEMPTED),
        {
          'action': 'Ignore',
          'onPodConditions': [{'type': 'DisruptionTarget', 'status': 'True'}],
        },
      ]
    },
    'template': {'spec': pod},
  }


def _place(options: argparse.Namespace, first_host: str) -> list[str]:
  """The flags that tell a process which of the job it is.

  JAX can find out by itself, with rights to read the cluster's API that not
  everybody may give. On TPUs it needs none.
  """
  if options.tpu:
    return []
  if _hosts(options) == 1:
    return ['--cluster=none']
  return [
    f'--coordinator_address={first_host}:{_PORT}',
    f'--num_processes={_hosts(options)}',
    '--process_id=$(JOB_COMPLETION_INDEX)',
  ]


def _on_exit(action: str, *codes: int) -> _Manifest:
  return {
    'action': action,
    'onExitCodes': {
      'containerName': 'trainer',
      'operator': 'In',
      'values': sorted(codes),
    },
  }


def _hosts(options: argparse.Namespace) -> int:
  if options.tpu:
    return resources.TPUS[options.tpu].hosts
  return options.nodes or 1


def _limits(options: argparse.Namespace) -> _Manifest:
  """Of a pod; Kubernetes also sets as much aside for it."""
  limits = {}
  if options.cpus:
    limits['cpu'] = str(options.cpus)
  if options.memory:
    limits['memory'] = options.memory
  if options.tpu:
    limits['google.com/tpu'] = str(resources.TPUS[options.tpu].chips)
  if options.gpus:
    limits['nvidia.com/gpu'] = str(options.gpus)
  return limits


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


def _tolerations(options: argparse.Namespace) -> list[_Manifest]:
  """Such nodes usually refuse pods that do not say that they mean them."""
  keys = {
    'google.com/tpu': options.tpu,
    'nvidia.com/gpu': options.gpus,
    'cloud.google.com/gke-spot': options.spot,
  }
  return [
    {'key': key, 'operator': 'Exists', 'effect': 'NoSchedule'}
    for key, asked in keys.items()
    if asked
  ]


def _name(options: argparse.Namespace, run: job.Run) -> str:
  """Of the run's objects: letters, digits and dashes, and not too many."""
  base = options.name or '_'.join(
    part
    for part in (options.experiment, options.preset or options.sweep)
    if part
  )
  full = f'{base}_{run.name}' if run.name else base
  name = re.sub('[^a-z0-9]+', '-', full.lower()).strip('-')
  if name == full.replace('_', '-') and len(name) <= _MOST_LETTERS:
    return name
  digest = hashlib.sha256(full.encode()).hexdigest()[:8]
  return f'{name[: _MOST_LETTERS - 9].rstrip("-")}-{digest}'


def _yaml(value: Any) -> list[str]:
  """The lines of a value; scalars are JSON, which is YAML too."""
  if isinstance(value, dict):
    lines = []
    for key, item in value.items():
      below = _yaml(item)
      if isinstance(item, dict | list):
        lines += [f'{key}:', *(f'  {line}' for line in below)]
      else:
        lines.append(f'{key}: {below[0]}')
    return lines
  if isinstance(value, list):
    lines = []
    for item in value:
      first, *rest = _yaml(item)
      lines += [f'- {first}', *(f'  {line}' for line in rest)]
    return lines
  return [json.dumps(value, ensure_ascii=False)]


def _check(options: argparse.Namespace) -> None:
  if options.tpu:
    if options.tpu not in resources.TPUS:
      job.fail(
        f'there is no TPU {options.tpu!r}; there are: '
        f'{", ".join(resources.TPUS)}'
      )
    if options.gpus or options.gpu_type or options.nodes:
      job.fail(
        f'--tpu={options.tpu} says how many hosts there are and what they '
        'have; leave out --nodes, --gpus and --gpu_type'
      )
  if options.gpu_type and not options.gpus:
    job.fail(f'--gpu_type={options.gpu_type} needs --gpus, those of a pod')
  workdir = pathlib.PurePosixPath(_VOLUME, options.workdir or '')
  if not workdir.is_relative_to(_VOLUME) or '..' in workdir.parts:
    job.fail(
      f'--workdir={options.workdir} is lost with its pod; give one below '
      f'{_VOLUME}, where the claim is, or a relative one'
    )


def _parser() -> argparse.ArgumentParser:
  parser = job.parser('kubernetes', __doc__ or '')
  parser.add_argument(
    '--image', required=True, help='as docker push was given it'
  )
  parser.add_argument(
    '--claim',
    type=_label('claim'),
    required=True,
    help='PersistentVolumeClaim that relative workdirs are on; '
    'ReadWriteMany for several pods',
  )
  parser.add_argument('--tpu', metavar='TYPE', help='a slice, such as v5e-256')
  parser.add_argument(
    '--nodes',
    type=job.number('nodes', 1),
    help='pods of a run without --tpu (default: 1)',
  )
  parser.add_argument(
    '--gpus', type=job.number('gpus', 1), help='of each pod (default: none)'
  )
  parser.add_argument(
    '--gpu_type', help="GKE's name, such as nvidia-h100-80gb (default: any)"
  )
  parser.add_argument(
    '--cpus', type=job.number('cpus', 1), help='cores of each pod'
  )
  parser.add_argument(
    '--memory',
    type=_matching('memory', r'[1-9]\d*[KMGT]i', 'a size such as 64Gi'),
    help='of each pod, such as 64Gi',
  )
  parser.add_argument(
    '--spot',
    action='store_true',
    help="on GKE's spot nodes, which give 15 s for saving unless set up "
    'otherwise',
  )
  parser.add_argument(
    '--node_selector',
    type=_node_label,
    action='append',
    default=[],
    metavar='LABEL=VALUE',
    help='of the nodes to run on; may be given several times',
  )
  parser.add_argument(
    '--kind',
    choices=('jobset', 'job'),
    default='jobset',
    help='job: for a cluster without JobSets (default: jobset)',
  )
  parser.add_argument('--namespace', type=_label('namespace'))
  parser.add_argument(
    '--name',
    type=_label('name'),
    help='of the JobSet, in front of the run for a sweep (default: the '
    'experiment and its preset or sweep)',
  )
  parser.add_argument(
    '--service_account',
    type=_label('service_account'),
    help='what the pods act as, to write to a bucket for example; must be '
    "there (default: the namespace's)",
  )
  parser.add_argument(
    '--queue', type=_label('queue'), help='LocalQueue of Kueue'
  )
  parser.add_argument(
    '--grace',
    type=job.number('grace', 1),
    default=120,
    help='seconds for saving when a pod has to go (default: 120)',
  )
  return parser


def _label(flag: str) -> Callable[[str], str]:
  return _matching(
    flag,
    '[a-z]([a-z0-9-]{0,61}[a-z0-9])?',
    'small letters, digits and dashes, a letter first, 63 at most',
  )


def _matching(flag: str, pattern: str, what: str) -> Callable[[str], str]:
  """The type of a flag whose text matches `pattern`."""

  def parse(text: str) -> str:
    if not re.fullmatch(pattern, text):
      job.fail(f'--{flag} takes {what}; got {text!r}')
    return text

  return parse


def _node_label(text: str) -> tuple[str, str]:
  key, equals, value = text.partition('=')
  if not equals or not re.fullmatch('[A-Za-z0-9][A-Za-z0-9./_-]*', key):
    job.fail(f'--node_selector takes LABEL=VALUE; got {text!r}')
  return key, value


if __name__ == '__main__':
  sys.exit(main())
