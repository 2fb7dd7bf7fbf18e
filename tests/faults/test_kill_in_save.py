"""Fault 2: killed while a checkpoint is being written in the background."""

import signal

import pytest

from rmc_jax.training import manifest
from tests.faults import drills
from tests.faults import trainer
from tests.training.test_loop import bits
from tests.training.test_loop import metrics_of

BALLAST = 1_000_000  # 4 MB that no disk compresses.


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('whole')
  return trainer.train(trainer.Config(ballast=BALLAST), workdir), workdir


@pytest.mark.slow
@pytest.mark.parametrize('fault', trainer.SAVE_FAULTS)
def test_the_last_whole_checkpoint_is_gone_on_from(
  tmp_path, whole, fault, capsys
):
  ((code, said),) = drills.run(
    tmp_path, f'{fault}@20', flags=[f'--config.ballast={BALLAST}'], devices=4
  )
  assert code == -signal.SIGKILL, said
  checkpoints = tmp_path / 'checkpoints'
  came_to_its_end = (checkpoints / '20' / manifest.FILE_NAME).exists()
  capsys.readouterr()
  state = trainer.train(trainer.Config(ballast=BALLAST), tmp_path)
  last_whole = 20 if came_to_its_end else 10
  assert drills.resumed_at(capsys.readouterr().out) == last_whole
  assert bits(state) == bits(whole[0])
  assert metrics_of(tmp_path) == metrics_of(whole[1])
  assert drills.steps_saved(tmp_path) == [10, 20, 30]
  for step in (10, 20, 30):
    manifest.verify(checkpoints / str(step))
  assert not list(checkpoints.glob('*tmp*'))
