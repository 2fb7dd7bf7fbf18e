"""The pods of a run on Kubernetes."""

import argparse
from collections.abc import Sequence
from typing import Any

from launch import job
from launch import resources

CONTAINER = 'trainer'
VOLUME = '/claim'
# Group of the user in launch/Dockerfile.
GROUP = 1000


def template(
  options: argparse.Namespace, command: Sequence[str]
) -> dict[str, Any]:
  """Returns the pod template of a Job; fields that do not apply are empty."""
  tpu = resources.TPUS.get(options.tpu)
  # Taints that such nodes usually have.
  taints = {
    'google.com/tpu': options.tpu,
    'nvidia.com/gpu': options.gpus,
    'cloud.google.com/gke-spot': options.spot,
  }
  volumes = _volumes(options)
  spec = {
    'restartPolicy': 'Never',
    'terminationGracePeriodSeconds': options.grace,
    # Pods get their rank by flags and need no access to the cluster's API.
    'automountServiceAccountToken': False,
    'securityContext': {
      'fsGroup': GROUP,
      'fsGroupChangePolicy': 'OnRootMismatch',
    },
    'serviceAccountName': options.service_account,
    'nodeSelector': {
      'cloud.google.com/gke-tpu-accelerator': tpu and tpu.gke_accelerator,
      'cloud.google.com/gke-tpu-topology': tpu and tpu.topology,
      'cloud.google.com/gke-accelerator': options.gpu_type,
      'cloud.google.com/gke-spot': 'true' if options.spot else None,
      **dict(options.node_selector),
    },
    'tolerations': [
      {'key': key, 'operator': 'Exists', 'effect': 'NoSchedule'}
      for key, requested in taints.items()
      if requested
    ],
    'volumes': list(volumes.values()),
    'containers': [_container(options, command, volumes)],
  }
  annotations = dict(options.pod_annotation)
  return {'metadata': {'annotations': annotations}, 'spec': spec}


def literal(text: str) -> str:
  """Escapes text in which Kubernetes would expand $(NAME)."""
  return text.replace('$', '$$')


def _volumes(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
  """Returns the volumes by the path where they are mounted."""
  volumes = {}
  if options.claim:
    claim = {'claimName': options.claim}
    volumes[VOLUME] = {'name': 'claim', 'persistentVolumeClaim': claim}
  if options.gpus:
    # NCCL needs more shared memory than the default of 64 MiB.
    volumes['/dev/shm'] = {'name': 'shm', 'emptyDir': {'medium': 'Memory'}}
  return volumes


def _container(
  options: argparse.Namespace,
  command: Sequence[str],
  volumes: dict[str, dict[str, Any]],
) -> dict[str, Any]:
  variables = dict(options.env)
  if not (options.tpu or options.gpus):
    variables = dict([job.large_pages().split('=', 1)]) | variables
  limits = {
    'cpu': options.cpus,
    'memory': options.memory,
    'nvidia.com/gpu': options.gpus,
    'google.com/tpu': options.tpu and resources.TPUS[options.tpu].chips,
  }
  return {
    'name': CONTAINER,
    'image': options.image,
    'command': command,
    'workingDir': VOLUME if options.claim else None,
    'env': [
      {'name': name, 'value': literal(value)}
      for name, value in variables.items()
    ],
    'resources': {
      'limits': {name: str(limit) for name, limit in limits.items() if limit}
    },
    # The devices of TPUs may belong to root.
    'securityContext': {'runAsUser': 0 if options.tpu else None},
    'volumeMounts': [
      {'name': volume['name'], 'mountPath': path}
      for path, volume in volumes.items()
    ],
  }
