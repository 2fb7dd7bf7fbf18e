"""Tests rmc_jax/training/distributed.py, some of it with two processes."""

import pathlib

import jax
import numpy as np
import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import distributed
from tests.training import jobs

PROGRAM = pathlib.Path(__file__).with_name('job_program.py')


def test_initialize_without_arguments_does_nothing():
  distributed.initialize()
  assert not jax.distributed.is_initialized()
  assert distributed.is_primary()
  distributed.shutdown()


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (
      {'process_id': 1},
      r'missing: coordinator_address and num_processes\. Got: \[1\]',
    ),
    (
      {'coordinator_address': 'a:1', 'num_processes': 2},
      r"missing: process_id\. Got: \['a:1', 2\]",
    ),
    (
      {
        'coordinator_address': 'a:1',
        'num_processes': 2,
        'process_id': 2,
      },
      'from 0 to 1 in a job of 2 processes. Got: 2',
    ),
    (
      {
        'coordinator_address': 'a:1',
        'num_processes': 0,
        'process_id': 0,
      },
      'process_id must be from 0 to -1 in a job of 0 processes',
    ),
    (
      {
        'coordinator_address': 'somewhere',
        'num_processes': 2,
        'process_id': 0,
      },
      "host:port .* Got: 'somewhere'",
    ),
  ],
)
def test_incomplete_or_invalid_arguments_raise(arguments, message):
  with pytest.raises(ConfigurationError, match=message):
    distributed.initialize(**arguments)


def run_job(folder, processes, devices_each):
  """Runs the program as a job; returns the results of each process."""
  paths = [folder / f'{processes}_{i}.npz' for i in range(processes)]
  for code, output in jobs.run(
    ['-W', 'error', str(PROGRAM)],
    [[path] for path in paths],
    devices=devices_each,
  ):
    assert code == 0, output
  return [dict(np.load(path)) for path in paths]


@pytest.mark.multiprocess
def test_two_processes_match_one_with_two_devices(tmp_path):
  first, second = run_job(tmp_path, processes=2, devices_each=1)
  (alone,) = run_job(tmp_path, processes=1, devices_each=2)
  assert first['primary']
  assert not second['primary']
  assert alone['primary']
  trained = [
    f'{key}_{name}'
    for key in ('typed', 'old')
    for name in ('hidden', 'out', 'losses')
  ]
  for name in (*trained, 'evaluation'):
    assert first[name].tobytes() == second[name].tobytes(), name
    # 16 updates of Adam that sum float32 numbers in another order.
    np.testing.assert_allclose(
      first[name], alone[name], rtol=1e-5, err_msg=name
    )
  assert alone['evaluation'][1] == 7
  for result in (first, second, alone):
    # What process 0 made, with the sign of its zero; its error in all.
    assert result['from_primary'].tobytes() == np.float32([-0.0, 5]).tobytes()
    assert str(result['from_primary_error']) == "OSError('0: no file')"
  for key in ('typed', 'old'):
    assert np.all(np.diff(alone[f'{key}_losses'][:4]) != 0)
  for result in (first, second, alone):
    # One device differs, and each process raises.
    assert "['out']" in str(result['divergence'])
    assert 'hidden' not in str(result['divergence'])


def test_complete_arguments_skip_cluster_detection(monkeypatch):
  # A pod whose image lacks the kubernetes package.
  monkeypatch.setenv('JOB_COMPLETION_INDEX', '1')
  monkeypatch.setenv('KUBERNETES_SERVICE_HOST', '10.0.0.1')
  given = {}
  monkeypatch.setattr(
    jax.distributed,
    'initialize',
    lambda *place, **more: given.update(more, place=place),
  )
  distributed.initialize(
    'first:8476', 3, 1, detect=True, initialization_timeout=7
  )
  assert given['place'] == ('first:8476', 3, 1)
  assert given['cluster_detection_method'] == 'deactivate'
  assert given['initialization_timeout'] == 7
