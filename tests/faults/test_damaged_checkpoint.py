"""Faults 3 and 4: the files of the newest checkpoint are not what they were."""

import random
import shutil

import pytest

from rmc_jax.training import manifest
from rmc_jax.training.checkpoint import NoGoodCheckpoint
from tests.faults import drills
from tests.faults import trainer
from tests.training.test_loop import bits
from tests.training.test_loop import metrics_of

CONFIG = trainer.Config(num_steps=20)


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """A run with checkpoints of the steps 10 and 20, and its state."""
  workdir = tmp_path_factory.mktemp('whole') / 'run'
  return trainer.train(CONFIG, workdir), workdir


def flip_a_bit(file):
  content = bytearray(file.read_bytes())
  content[random.randrange(len(content))] ^= 1 << random.randrange(8)
  file.write_bytes(content)


def truncate(file):
  file.write_bytes(file.read_bytes()[:-1])


def delete(file):
  file.unlink()


def assert_goes_on_from_10(whole, workdir, capsys, harmed):
  """It does, with a reason, and comes to the same end as the whole run."""
  state = trainer.train(CONFIG, workdir)
  out = capsys.readouterr().out
  assert drills.resumed_at(out) == 10, harmed
  assert bits(state) == bits(whole[0]), harmed
  assert metrics_of(workdir) == metrics_of(whole[1]), harmed
  assert drills.steps_saved(workdir) == [10, 20], harmed
  manifest.verify(workdir / 'checkpoints' / '20')


@pytest.mark.parametrize('harm', [flip_a_bit, truncate, delete])
def test_a_harmed_file_never_makes_a_silent_difference(
  tmp_path, whole, harm, capsys, caplog
):
  newest = whole[1] / 'checkpoints' / '20'
  files = [path for path in newest.rglob('*') if path.is_file()]
  assert len(files) > 5
  for index, file in enumerate(files):
    name = file.relative_to(whole[1])
    if harm is not delete and not file.stat().st_size:
      continue
    workdir = tmp_path / str(index)
    shutil.copytree(whole[1], workdir)
    harm(workdir / name)
    caplog.clear()
    assert_goes_on_from_10(whole, workdir, capsys, harmed=name)
    assert 'The checkpoint of step 20 is damaged' in caplog.text, name
    reason = (workdir / 'checkpoints/quarantined/20.txt').read_text()
    assert file.name in reason, name


def test_an_empty_folder_of_a_higher_step_is_put_aside(
  tmp_path, whole, capsys, caplog
):
  workdir = tmp_path / 'run'
  shutil.copytree(whole[1], workdir)
  shutil.rmtree(workdir / 'checkpoints' / '20')
  (workdir / 'checkpoints' / '50').mkdir()
  assert_goes_on_from_10(whole, workdir, capsys, harmed='50')
  assert 'The checkpoint of step 50 is damaged' in caplog.text


def test_nothing_good_left_is_told_and_nothing_is_removed(tmp_path, whole):
  workdir = tmp_path / 'run'
  shutil.copytree(whole[1], workdir)
  for step in (10, 20):
    truncate(workdir / 'checkpoints' / str(step) / manifest.FILE_NAME)
  before = sorted((workdir / 'checkpoints').rglob('*'))
  message = r'step 20: .* step 10: .*Nothing was'
  with pytest.raises(NoGoodCheckpoint, match=message) as refused:
    trainer.train(CONFIG, workdir)
  assert refused.value.exit_code == 77
  assert sorted((workdir / 'checkpoints').rglob('*')) == before
