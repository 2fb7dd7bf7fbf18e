"""Detects the job that this process belongs to, and its GPUs.

Slurm, Open MPI and Kubernetes set environment variables; a Cloud TPU has the
metadata of its machine. JAX finds the coordinator from them.
"""

from collections.abc import Mapping
import importlib.util
import itertools
import re
import shutil
import subprocess
from typing import NamedTuple

from rmc_jax.errors import ConfigurationError


class Place(NamedTuple):
  """The place of a process in its job and on its host."""

  name: str  # Of the cluster, for messages.
  method: str | None = None  # JAX's `cluster_detection_method`.
  process_count: int | None = None  # None: JAX detects it.
  process_id: int | None = None
  local_id: int = 0
  local_count: int = 1
  bound: bool = False  # The launcher shows each process only its own GPUs.


def find(environment: Mapping[str, str]) -> Place | None:
  """Returns the place of this process; None for a single process.

  Raises:
    ConfigurationError: a package that detection needs is missing.
  """
  detectors = _slurm, _open_mpi, _cloud_tpu, _kubernetes
  places = (detect(environment) for detect in detectors)
  return next(filter(None, places), None)


def local_devices(
  place: Place, environment: Mapping[str, str]
) -> list[int] | None:
  """Returns the indices of this process's GPUs among those it can see.

  Divides GPUs that all processes of a host see; JAX by itself would use one per
  process and leave the others idle. None means all devices.

  Raises:
    ConfigurationError: the GPUs do not divide.
  """
  count = _visible_gpus(environment)
  if count == 0:
    return None
  # A process that sees fewer GPUs than there are processes sees its own.
  if place.bound or count < place.local_count:
    return list(range(count))
  if count % place.local_count:
    raise ConfigurationError(
      f'{count} GPUs do not divide over the {place.local_count} processes of '
      'this host. Change the number of processes, or bind GPUs to them.'
    )
  share = count // place.local_count
  return list(range(place.local_id * share, (place.local_id + 1) * share))


def _slurm(environment: Mapping[str, str]) -> Place | None:
  """A process in a step that srun started; a batch script is not in a step."""
  if 'SLURM_STEP_NODELIST' not in environment:
    return None
  count = int(environment.get('SLURM_NTASKS', '1'))
  if count == 1:
    return None
  node = int(environment['SLURM_NODEID'])
  return Place(
    name='Slurm',
    method='slurm',
    process_count=count,
    process_id=int(environment['SLURM_PROCID']),
    local_id=int(environment['SLURM_LOCALID']),
    local_count=_tasks_per_node(environment)[node],
    bound='SLURM_GPUS_PER_TASK' in environment
    or 'SLURM_NTASKS_PER_GPU' in environment,
  )


def _tasks_per_node(environment: Mapping[str, str]) -> list[int]:
  """Parses SLURM_STEP_TASKS_PER_NODE: '2(x3),1' is [2, 2, 2, 1]."""
  parts = re.findall(
    r'(\d+)(?:\(x(\d+)\))?', environment['SLURM_STEP_TASKS_PER_NODE']
  )
  return [int(tasks) for tasks, times in parts for _ in range(int(times or 1))]


def _open_mpi(environment: Mapping[str, str]) -> Place | None:
  """A rank of mpirun; only version 4 gives JAX the address of rank 0."""
  count = int(environment.get('OMPI_COMM_WORLD_SIZE', '1'))
  if count == 1:
    return None
  return Place(
    name='Open MPI',
    method='ompi' if 'OMPI_MCA_orte_hnp_uri' in environment else 'deactivate',
    process_count=count,
    process_id=int(environment['OMPI_COMM_WORLD_RANK']),
    local_id=int(environment['OMPI_COMM_WORLD_LOCAL_RANK']),
    local_count=int(environment['OMPI_COMM_WORLD_LOCAL_SIZE']),
  )


def _cloud_tpu(environment: Mapping[str, str]) -> Place | None:
  """A machine with JAX's TPU build, which launch/setup.sh installs on TPUs."""
  platforms = environment.get('JAX_PLATFORMS') or 'tpu'
  if 'tpu' not in platforms or importlib.util.find_spec('libtpu') is None:
    return None
  return Place(name='Cloud TPU')


def _kubernetes(environment: Mapping[str, str]) -> Place | None:
  """A pod of an indexed Job or a JobSet; JAX queries the cluster's API."""
  indexed = 'JOB_COMPLETION_INDEX' in environment
  if not indexed or 'KUBERNETES_SERVICE_HOST' not in environment:
    return None
  if importlib.util.find_spec('kubernetes') is None:
    raise ConfigurationError(
      'This pod belongs to an indexed Job, but the package that finds its '
      'peers is missing. Install jax[k8s], or pass --coordinator_address, '
      '--num_processes and --process_id, or --cluster=none.'
    )
  return Place(name='Kubernetes')


def _visible_gpus(environment: Mapping[str, str]) -> int:
  if 'cpu' in environment.get('JAX_PLATFORMS', ''):
    return 0
  visible = environment.get('CUDA_VISIBLE_DEVICES')
  if visible is not None:
    # Like CUDA: devices after an invalid name, such as -1, are hidden.
    names = itertools.takewhile(
      lambda name: name and not name.startswith('-'), visible.split(',')
    )
    return len(list(names))
  if not shutil.which('nvidia-smi'):
    return 0
  listed = subprocess.run(
    ['nvidia-smi', '--list-gpus'], capture_output=True, text=True, check=False
  )
  return len(listed.stdout.splitlines()) if listed.returncode == 0 else 0
