"""Tests rmc_jax/training/cluster.py with the environments of launchers."""

import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import cluster

# Task 5 of 7: the second task on the third of three hosts (2 + 2 + 3 tasks).
SLURM = {
  'SLURM_JOB_ID': '123',
  'SLURM_STEP_NODELIST': 'n[1-3]',
  'SLURM_STEP_TASKS_PER_NODE': '2(x2),3',
  'SLURM_NTASKS': '7',
  'SLURM_NODEID': '2',
  'SLURM_PROCID': '5',
  'SLURM_LOCALID': '1',
}
OPEN_MPI = {
  'OMPI_COMM_WORLD_SIZE': '7',
  'OMPI_COMM_WORLD_RANK': '5',
  'OMPI_COMM_WORLD_LOCAL_RANK': '1',
  'OMPI_COMM_WORLD_LOCAL_SIZE': '3',
  'OMPI_MCA_orte_hnp_uri': '1.0;tcp://10.0.0.1:2',
}


@pytest.fixture
def installed(monkeypatch):
  """Makes only the named packages appear installed."""

  def make(*names):
    monkeypatch.setattr(
      cluster.importlib.util,
      'find_spec',
      lambda name: name if name in names else None,
    )

  make()
  return make


@pytest.mark.parametrize(
  ('environment', 'name', 'method'),
  [(SLURM, 'Slurm', 'slurm'), (OPEN_MPI, 'Open MPI', 'ompi')],
)
def test_find_returns_the_place_of_a_task(installed, environment, name, method):
  del installed
  assert cluster.find(environment) == cluster.Place(
    name=name,
    method=method,
    process_count=7,
    process_id=5,
    local_id=1,
    local_count=3,
  )


@pytest.mark.parametrize(
  'environment',
  [
    {},
    # A batch script, outside a step.
    {k: v for k, v in SLURM.items() if 'STEP' not in k},
    SLURM | {'SLURM_NTASKS': '1'},
    OPEN_MPI | {'OMPI_COMM_WORLD_SIZE': '1'},
    # Not a pod of an indexed Job.
    {'KUBERNETES_SERVICE_HOST': '10.0.0.1'},
  ],
)
def test_find_returns_none_for_a_single_process(installed, environment):
  del installed
  assert cluster.find(environment) is None


def test_open_mpi_5_does_not_give_the_address_of_rank_0(installed):
  del installed
  environment = dict(OPEN_MPI)
  del environment['OMPI_MCA_orte_hnp_uri']
  assert cluster.find(environment).method == 'deactivate'


def test_jax_detects_a_cloud_tpu(installed):
  installed('libtpu')
  assert cluster.find({}).name == 'Cloud TPU'
  assert cluster.find({'JAX_PLATFORMS': ''}).name == 'Cloud TPU'
  assert cluster.find({'JAX_PLATFORMS': 'cpu'}) is None


def test_kubernetes_without_its_package_raises(installed):
  pod = {'KUBERNETES_SERVICE_HOST': '10.0.0.1', 'JOB_COMPLETION_INDEX': '2'}
  with pytest.raises(ConfigurationError, match=r'Install jax\[k8s\]'):
    cluster.find(pod)
  installed('kubernetes')
  assert cluster.find(pod).name == 'Kubernetes'


@pytest.mark.parametrize(
  ('gpus', 'changes', 'expected'),
  [
    ('', {}, None),  # A CPU.
    ('0,1,2,3,4,5', {}, [2, 3]),  # All processes see all GPUs.
    ('0,1,2', {}, [1]),
    ('7', {}, [0]),  # Each process sees its own GPU.
    ('4,5,6', {'SLURM_GPUS_PER_TASK': '3'}, [0, 1, 2]),
  ],
)
def test_gpus_of_a_host_are_divided(installed, gpus, changes, expected):
  del installed
  environment = SLURM | changes | {'CUDA_VISIBLE_DEVICES': gpus}
  place = cluster.find(environment)
  assert cluster.local_devices(place, environment) == expected


def test_gpus_that_do_not_divide_raise(installed):
  del installed
  environment = SLURM | {'CUDA_VISIBLE_DEVICES': '0,1,2,3'}
  with pytest.raises(ConfigurationError, match='4 GPUs do not divide .* 3'):
    cluster.local_devices(cluster.find(environment), environment)


def test_nvidia_smi_lists_gpus_without_cuda_visible_devices(
  installed, monkeypatch, tmp_path
):
  del installed
  program = tmp_path / 'nvidia-smi'
  program.write_text('#!/bin/sh\nfor i in 0 1 2 3 4 5; do echo GPU $i; done\n')
  program.chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}:/bin:/usr/bin')
  assert cluster.local_devices(cluster.find(SLURM), SLURM) == [2, 3]
  on_cpu = SLURM | {'JAX_PLATFORMS': 'cpu'}
  assert cluster.local_devices(cluster.find(on_cpu), on_cpu) is None
