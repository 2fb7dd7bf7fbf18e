"""Fault 10: resumed on other devices, with another configuration, or twice."""

import shutil

import jax
import numpy as np
import pytest

from rmc_jax.training.checkpoint import Checkpointer
from rmc_jax.training.checkpoint import StructureMismatch
from tests.faults import drills
from tests.faults import trainer

PLAIN = '--noconfig.dropout'


@pytest.fixture(scope='module')
def stopped(tmp_path_factory):
  """The workdir of a run of 15 updates on four devices."""
  workdir = tmp_path_factory.mktemp('stopped') / 'run'
  ((code, output),) = drills.run(
    workdir, 'none', flags=[PLAIN, '--config.run.num_steps=15'], devices=4
  )
  assert code == 0, output
  return workdir


@pytest.fixture(scope='module')
def expected_params(stopped, tmp_path_factory):
  """The final parameters of `stopped`, resumed on four devices."""
  workdir = tmp_path_factory.mktemp('expected') / 'run'
  shutil.copytree(stopped, workdir)
  trainer.run(trainer.make_config(dropout=False), workdir)
  return final_params(workdir)


def final_params(workdir):
  target = jax.eval_shape(lambda: trainer.init(trainer.make_config()))
  with Checkpointer(workdir / 'checkpoints') as saver:
    restored = saver.restore(target)
  assert restored.step == 30
  return restored.state.params['linear']


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize(
  ('processes', 'devices'), [(1, 1), (1, 2), (1, 8), (2, 1)]
)
def test_resume_on_other_devices_is_close(
  tmp_path, stopped, expected_params, processes, devices
):
  workdir = tmp_path / 'run'
  shutil.copytree(stopped, workdir)
  faults = ['none'] * processes
  ended = drills.run(workdir, *faults, flags=[PLAIN], devices=devices)
  for code, output in ended:
    assert code == 0, output
  out = ended[0][1]
  assert drills.resumed_at(out) == 15
  assert 'with other versions or devices: devices 4 ->' in out
  assert 'not bit for bit' in out
  params = final_params(workdir)
  for name, wanted in expected_params.items():
    # 15 updates that sum float32 numbers in another order.
    np.testing.assert_allclose(params[name], wanted, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.multiprocess
def test_one_process_resumes_a_job_of_two(tmp_path):
  flags = [PLAIN, '--config.run.num_steps=15']
  for code, output in drills.run(tmp_path / 'run', 'none', 'none', flags=flags):
    assert code == 0, output
  shutil.copytree(tmp_path / 'run', tmp_path / 'one')
  for folder, faults in (('run', ['none'] * 2), ('one', ['none'])):
    ended = drills.run(tmp_path / folder, *faults, flags=[PLAIN])
    assert [code for code, _ in ended] == [0] * len(faults), ended
    assert drills.resumed_at(ended[0][1]) == 15
  two, one = final_params(tmp_path / 'run'), final_params(tmp_path / 'one')
  for name, wanted in two.items():
    np.testing.assert_allclose(one[name], wanted, rtol=1e-5)


@pytest.mark.slow
def test_changed_configuration_raises_with_the_difference(stopped):
  before = {path: path.stat().st_mtime_ns for path in stopped.rglob('*')}
  ((code, output),) = drills.run(
      stopped, 'none',
      flags=[
          PLAIN, '--config.outputs=7', '--config.optimizer=sgd',
          '--config.batch_size=16',
      ],
      devices=4,
  )  # fmt: skip
  assert code == 77, output
  lines = [line.strip() for line in output.splitlines() if ' there, ' in line]
  assert lines == [
    'config.batch_size: 8 there, 16 now',
    'config.optimizer: adam there, sgd now',
    'config.outputs: 5 there, 7 now',
  ]
  now = {path: path.stat().st_mtime_ns for path in stopped.rglob('*')}
  assert now == before


@pytest.mark.parametrize(
  ('changes', 'difference'),
  [
    ({'outputs': 7}, r'linear/w: float32\[3, 5\] in the .*\[3, 7\] here'),
    ({'optimizer': 'sgd'}, 'opt_state/.* only in the checkpoint'),
  ],
)
def test_changed_state_raises_for_any_configuration(
  tmp_path, stopped, changes, difference
):
  shutil.copytree(stopped, tmp_path / 'run')
  with pytest.raises(StructureMismatch, match=difference) as error:
    trainer.run(trainer.make_config(dropout=False, **changes), tmp_path / 'run')
  assert len(str(error.value).splitlines()) <= 24  # One screen.
  assert drills.saved_steps(tmp_path / 'run') == [10, 15]


@pytest.mark.slow
def test_second_trainer_in_a_workdir_raises(tmp_path, monkeypatch):
  ended = []

  def start_another(step, batch, workdir):
    del step
    ended.extend(drills.run(workdir, 'none', devices=4))
    return batch

  monkeypatch.setitem(trainer.FAULTS, 'another', start_another)
  config = trainer.make_config()
  state = trainer.run(config, tmp_path, fault='another@5')
  ((code, output),) = ended
  assert code == 77, output
  assert f'Another process is training in {tmp_path}' in output
  assert int(state.step) == 30
  assert drills.steps_loaded(tmp_path) == list(range(30))
