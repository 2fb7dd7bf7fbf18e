"""Faults 3 and 4: the files of the newest checkpoint are damaged."""

import random
import shutil

import pytest

from rmc_jax.training import manifest
from rmc_jax.training.checkpoint import NoGoodCheckpoint
from tests.faults import drills
from tests.faults import trainer
from tests.training.test_loop import bits
from tests.training.test_loop import metrics_of

CONFIG = trainer.make_config(num_steps=20)


@pytest.fixture(scope='module')
def complete_run(tmp_path_factory):
  """The state and workdir of a run with checkpoints of steps 10 and 20."""
  workdir = tmp_path_factory.mktemp('complete') / 'run'
  return trainer.run(CONFIG, workdir), workdir


def flip_a_bit(file):
  content = bytearray(file.read_bytes())
  content[random.randrange(len(content))] ^= 1 << random.randrange(8)
  file.write_bytes(content)


def truncate(file):
  file.write_bytes(file.read_bytes()[:-1])


def delete(file):
  file.unlink()


def assert_resumes_at_10(complete_run, workdir, capsys, damaged):
  """Asserts that the run resumes at step 10 and ends like `complete_run`."""
  state = trainer.run(CONFIG, workdir)
  out = capsys.readouterr().out
  assert drills.resumed_at(out) == 10, damaged
  assert bits(state) == bits(complete_run[0]), damaged
  assert metrics_of(workdir) == metrics_of(complete_run[1]), damaged
  assert drills.saved_steps(workdir) == [10, 20], damaged
  manifest.verify(workdir / 'checkpoints' / '20')


@pytest.mark.parametrize('damage', [flip_a_bit, truncate, delete])
def test_damaged_file_falls_back_to_the_previous_checkpoint(
  tmp_path, complete_run, damage, capsys, caplog
):
  newest = complete_run[1] / 'checkpoints' / '20'
  files = [path for path in newest.rglob('*') if path.is_file()]
  assert len(files) > 5
  for index, file in enumerate(files):
    name = file.relative_to(complete_run[1])
    if damage is not delete and not file.stat().st_size:
      continue
    workdir = tmp_path / str(index)
    shutil.copytree(complete_run[1], workdir)
    damage(workdir / name)
    caplog.clear()
    assert_resumes_at_10(complete_run, workdir, capsys, damaged=name)
    assert 'The checkpoint of step 20 is damaged' in caplog.text, name
    reason = (workdir / 'checkpoints/quarantined/20.txt').read_text()
    assert file.name in reason, name


def test_empty_folder_of_a_higher_step_is_quarantined(
  tmp_path, complete_run, capsys, caplog
):
  workdir = tmp_path / 'run'
  shutil.copytree(complete_run[1], workdir)
  shutil.rmtree(workdir / 'checkpoints' / '20')
  (workdir / 'checkpoints' / '50').mkdir()
  assert_resumes_at_10(complete_run, workdir, capsys, damaged='50')
  assert 'The checkpoint of step 50 is damaged' in caplog.text


def test_no_good_checkpoint_is_an_error_that_removes_nothing(
  tmp_path, complete_run
):
  workdir = tmp_path / 'run'
  shutil.copytree(complete_run[1], workdir)
  for step in (10, 20):
    truncate(workdir / 'checkpoints' / str(step) / manifest.FILE_NAME)
  before = sorted((workdir / 'checkpoints').rglob('*'))
  message = r'step 20: .* step 10: .*Nothing was'
  with pytest.raises(NoGoodCheckpoint, match=message) as error:
    trainer.run(CONFIG, workdir)
  assert error.value.exit_code == 77
  assert sorted((workdir / 'checkpoints').rglob('*')) == before
