"""Tests rmc_jax/training/distributed.py, with real processes at the end."""

import pathlib

import jax
import numpy as np
import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import distributed
from tests.training import jobs

PROGRAM = pathlib.Path(__file__).with_name('one_of_two.py')


def test_without_flags_this_is_a_job_of_one_process():
  distributed.initialize()
  assert not jax.distributed.is_initialized()
  assert distributed.is_primary()
  distributed.shutdown()


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ({'process_id': 1}, 'coordinator_address and process_count missing'),
    (
      {'coordinator_address': 'a:1', 'process_count': 2},
      r"process_id missing, the others are \['a:1', 2\]",
    ),
    (
      {
        'coordinator_address': 'a:1',
        'process_count': 2,
        'process_id': 2,
      },
      'from 0 to 1 in a job of 2, got 2',
    ),
    (
      {
        'coordinator_address': 'a:1',
        'process_count': 0,
        'process_id': 0,
      },
      'process_count must be positive, got 0',
    ),
    (
      {
        'coordinator_address': 'somewhere',
        'process_count': 2,
        'process_id': 0,
      },
      "host:port .* got 'somewhere'",
    ),
  ],
)
def test_flags_that_make_no_job_are_refused(arguments, message):
  with pytest.raises(ConfigurationError, match=message):
    distributed.initialize(**arguments)


def run_job(folder, processes, devices_each):
  """Runs the program in so many processes; returns what each ended with."""
  outputs = [folder / f'{processes}_{i}.npz' for i in range(processes)]
  for code, said in jobs.run(
    ['-W', 'error', str(PROGRAM)],
    [[output] for output in outputs],
    devices=devices_each,
  ):
    assert code == 0, said
  return [dict(np.load(output)) for output in outputs]


@pytest.mark.multiprocess
def test_two_processes_train_as_one_with_two_devices(tmp_path):
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
    # The order in which two float32 numbers are added is another one in
    # another layout, 16 times over and through Adam.
    np.testing.assert_allclose(
      first[name], alone[name], rtol=1e-5, err_msg=name
    )
  assert alone['evaluation'][1] == 7
  for key in ('typed', 'old'):
    assert np.all(np.diff(alone[f'{key}_losses'][:4]) != 0)
  for result in (first, second, alone):
    # Only one device differs, but each process hears of it.
    assert "['out']" in str(result['divergence'])
    assert 'hidden' not in str(result['divergence'])


def test_who_is_told_everything_looks_at_no_cluster(monkeypatch):
  # As in a pod whose image has no package to ask the cluster with.
  monkeypatch.setenv('JOB_COMPLETION_INDEX', '1')
  monkeypatch.setenv('KUBERNETES_SERVICE_HOST', '10.0.0.1')
  given = {}
  monkeypatch.setattr(
    jax.distributed,
    'initialize',
    lambda *place, **more: given.update(more, place=place),
  )
  distributed.initialize('first:8476', 3, 1, detect=True)
  assert given['place'] == ('first:8476', 3, 1)
  assert given['cluster_detection_method'] == 'deactivate'
