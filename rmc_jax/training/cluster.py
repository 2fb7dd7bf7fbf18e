"""Which job of several processes this is one of, as its launcher tells.

Slurm, Open MPI and Kubernetes say so in environment variables, a Cloud TPU in
the metadata of its machine. JAX reads who leads the job from there; decided
here are whether there is a job at all, and which GPUs are this process's.
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
  """One process among those of a job.

  Attributes:
    name: of the cluster, for messages.
    method: `cluster_detection_method` of `jax.distributed.initialize`; None
      leaves it to JAX.
    process_count: processes of the job; None where only JAX can tell.
    process_id: which of them this is.
    local_id: which of those on this host this is.
    local_count: how many are on this host.
    bound: whether the launcher shows each process its own GPUs only.
  """

  name: str
  method: str | None = None
  process_count: int | None = None
  process_id: int | None = None
  local_id: int = 0
  local_count: int = 1
  bound: bool = False


def find(environment: Mapping[str, str]) -> Place | None:
  """The job that `environment` is of; None for a process on its own.

  Raises:
    ConfigurationError: its launcher does not tell enough.
  """
  for look in (_slurm, _open_mpi, _cloud_tpu, _kubernetes):
    if place := look(environment):
      return place
  return None


def local_devices(
  place: Place, environment: Mapping[str, str]
) -> list[int] | None:
  """The GPUs of this process, as numbers among those it can see; None: all.

  Those that the processes of a host all see are divided among them. JAX on its
  own would give one to each and leave the others unused.

  Raises:
    ConfigurationError: they do not divide.
  """
  count = _visible_gpus(environment)
  if count == 0:
    return None
  # A process that sees fewer than there are processes sees its own.
  if place.bound or count < place.local_count:
    return list(range(count))
  if count % place.local_count:
    raise ConfigurationError(
      f'{count} GPUs do not divide over the {place.local_count} processes of '
      'this host. Start as many as divide, or bind GPUs to processes.'
    )
  share = count // place.local_count
  return list(range(place.local_id * share, (place.local_id + 1) * share))


def _slurm(environment: Mapping[str, str]) -> Place | None:
  """Inside a step that srun started; a batch script itself is in none."""
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
    bound=any(
      name in environment
      for name in ('SLURM_GPUS_PER_TASK', 'SLURM_NTASKS_PER_GPU')
    ),
  )


def _tasks_per_node(environment: Mapping[str, str]) -> list[int]:
  """SLURM_STEP_TASKS_PER_NODE=2(x3),1 is 2, 2, 2, 1."""
  parts = re.findall(
    r'(\d+)(?:\(x(\d+)\))?', environment['SLURM_STEP_TASKS_PER_NODE']
  )
  return [int(tasks) for tasks, times in parts for _ in range(int(times or 1))]


def _open_mpi(environment: Mapping[str, str]) -> Place | None:
  """Version 4 tells JAX where rank 0 is; later ones need to be told."""
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
  """With JAX's build for TPUs, which launch/setup.sh installs where one is."""
  platforms = environment.get('JAX_PLATFORMS', 'tpu')
  if 'tpu' not in platforms or importlib.util.find_spec('libtpu') is None:
    return None
  return Place(name='Cloud TPU')


def _kubernetes(environment: Mapping[str, str]) -> Place | None:
  """An indexed Job or a JobSet, where JAX can ask the cluster's API."""
  indexed = 'JOB_COMPLETION_INDEX' in environment
  if not indexed or 'KUBERNETES_SERVICE_HOST' not in environment:
    return None
  if importlib.util.find_spec('kubernetes') is None:
    raise ConfigurationError(
      'This is a pod of an indexed Job, and the package that asks for its '
      'siblings is missing. Install jax[k8s], give --coordinator_address, '
      '--num_processes and --process_id, or say --cluster=none.'
    )
  return Place(name='Kubernetes')


def _visible_gpus(environment: Mapping[str, str]) -> int:
  if 'cpu' in environment.get('JAX_PLATFORMS', ''):
    return 0
  visible = environment.get('CUDA_VISIBLE_DEVICES')
  if visible is not None:
    # As CUDA does: what follows a name that is none, such as -1, is not seen.
    names = itertools.takewhile(
      lambda name: name and not name.startswith('-'), visible.split(',')
    )
    return len(list(names))
  if not shutil.which('nvidia-smi'):
    return 0
  listed = subprocess.run(
    ['nvidia-smi', '--list-gpus'],
    capture_output=True,
    text=True,
    check=False,
  )
  return len(listed.stdout.splitlines()) if listed.returncode == 0 else 0
