"""Fault 2: SIGKILL while a checkpoint is written in the background."""

import signal

import pytest

from rmc_jax.training import manifest
from tests.faults import drills
from tests.faults import trainer
from tests.training.test_loop import bits
from tests.training.test_loop import metrics_of

BALLAST = 1_000_000  # 4 MB that no disk compresses.


@pytest.fixture(scope='module')
def complete_run(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('complete')
  return trainer.run(trainer.make_config(ballast=BALLAST), workdir), workdir


@pytest.mark.slow
@pytest.mark.parametrize('fault', trainer.SAVE_FAULTS)
def test_resumes_at_the_last_complete_checkpoint(
  tmp_path, complete_run, fault, capsys
):
  ((code, output),) = drills.run(
    tmp_path, f'{fault}@20', flags=[f'--config.ballast={BALLAST}'], devices=4
  )
  assert code == -signal.SIGKILL, output
  checkpoints = tmp_path / 'checkpoints'
  save_completed = (checkpoints / '20' / manifest.FILE_NAME).exists()
  capsys.readouterr()
  state = trainer.run(trainer.make_config(ballast=BALLAST), tmp_path)
  expected = 20 if save_completed else 10
  assert drills.resumed_at(capsys.readouterr().out) == expected
  assert bits(state) == bits(complete_run[0])
  assert metrics_of(tmp_path) == metrics_of(complete_run[1])
  assert drills.saved_steps(tmp_path) == [10, 20, 30]
  for step in (10, 20, 30):
    manifest.verify(checkpoints / str(step))
  assert not list(checkpoints.glob('*tmp*'))
