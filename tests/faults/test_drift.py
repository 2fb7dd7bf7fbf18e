"""Fault 10: started again on other devices, otherwise configured, or twice."""

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
  """A run of 15 updates on four devices, made by the command line."""
  workdir = tmp_path_factory.mktemp('stopped') / 'run'
  ((code, said),) = drills.run(
    workdir, 'none', flags=[PLAIN, '--config.num_steps=15'], devices=4
  )
  assert code == 0, said
  return workdir


@pytest.fixture(scope='module')
def gone_on(stopped, tmp_path_factory):
  """What it comes to where it goes on on four devices."""
  workdir = tmp_path_factory.mktemp('gone_on') / 'run'
  shutil.copytree(stopped, workdir)
  trainer.train(trainer.Config(dropout=False), workdir)
  return final_params(workdir)


def final_params(workdir):
  target = jax.eval_shape(lambda: trainer.init(trainer.Config()))
  with Checkpointer(workdir / 'checkpoints') as saver:
    step, state = saver.restore(target)
  assert step == 30
  return state.params['linear']


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize(
  ('processes', 'devices'), [(1, 1), (1, 2), (1, 8), (2, 1)]
)
def test_on_other_devices_it_comes_to_nearly_the_same(
  tmp_path, stopped, gone_on, processes, devices
):
  workdir = tmp_path / 'run'
  shutil.copytree(stopped, workdir)
  faults = ['none'] * processes
  ended = drills.run(workdir, *faults, flags=[PLAIN], devices=devices)
  for code, said in ended:
    assert code == 0, said
  out = ended[0][1]
  assert drills.resumed_at(out) == 15
  assert 'under other conditions: devices 4 ->' in out
  assert 'not bit for bit' in out
  params = final_params(workdir)
  for name, wanted in gone_on.items():
    # The order in which float32 numbers are added is another one, 15 times.
    np.testing.assert_allclose(params[name], wanted, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.multiprocess
def test_what_two_processes_saved_one_goes_on_with(tmp_path):
  flags = [PLAIN, '--config.num_steps=15']
  for code, said in drills.run(tmp_path / 'run', 'none', 'none', flags=flags):
    assert code == 0, said
  shutil.copytree(tmp_path / 'run', tmp_path / 'one')
  for folder, faults in (('run', ['none'] * 2), ('one', ['none'])):
    ended = drills.run(tmp_path / folder, *faults, flags=[PLAIN])
    assert [code for code, _ in ended] == [0] * len(faults), ended
    assert drills.resumed_at(ended[0][1]) == 15
  two, one = final_params(tmp_path / 'run'), final_params(tmp_path / 'one')
  for name, wanted in two.items():
    np.testing.assert_allclose(one[name], wanted, rtol=1e-5)


@pytest.mark.slow
def test_another_configuration_is_refused_with_the_difference(stopped):
  before = {path: path.stat().st_mtime_ns for path in stopped.rglob('*')}
  ((code, said),) = drills.run(
      stopped, 'none',
      flags=[
          PLAIN, '--config.outputs=7', '--config.optimizer=sgd',
          '--config.batch_size=16',
      ],
      devices=4,
  )  # fmt: skip
  assert code == 77, said
  told = [line.strip() for line in said.splitlines() if ' there, ' in line]
  assert told == [
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
def test_another_state_is_refused_whatever_the_configuration_says(
  tmp_path, stopped, changes, difference
):
  shutil.copytree(stopped, tmp_path / 'run')
  with pytest.raises(StructureMismatch, match=difference) as refused:
    trainer.train(trainer.Config(dropout=False, **changes), tmp_path / 'run')
  assert len(str(refused.value).splitlines()) <= 24  # One screen.
  assert drills.steps_saved(tmp_path / 'run') == [10, 15]


@pytest.mark.slow
def test_the_second_trainer_of_a_workdir_is_refused(tmp_path, monkeypatch):
  ended = []

  def start_another(step, batch, workdir):
    del step
    ended.extend(drills.run(workdir, 'none', devices=4))
    return batch

  monkeypatch.setitem(trainer.FAULTS, 'another', start_another)
  config = trainer.Config()
  state = trainer.train(config, tmp_path, fault='another@5')
  ((code, said),) = ended
  assert code == 77, said
  assert f'Another process is training in {tmp_path}' in said
  assert int(state.step) == 30
  assert drills.asked(tmp_path) == list(range(30))
