"""Tests that experiments/command_line.py protects the runs in a workdir."""

import dataclasses
import json

from absl import flags
import pytest

from rmc_jax.training.lock import acquire_lock
from tests.experiments.toy_program import Config
from tests.experiments.toy_program import start
from tests.experiments.toy_program import start_and_save


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  yield
  flags.FLAGS.unparse_flags()


def test_configuration_is_saved_before_training(tmp_path):
  def look():
    saved = json.loads((tmp_path / 'mine' / 'config.json').read_text())
    assert saved['config']['num_steps'] == 7

  assert start('--workdir=mine', '--config.num_steps=7', train=look)[0] == 0


def test_num_steps_may_change_on_resume(tmp_path):
  start_and_save('--workdir=mine')
  code, calls = start('--workdir=mine', '--config.num_steps=200')
  assert code == 0
  assert len(calls) == 1
  saved = json.loads((tmp_path / 'mine' / 'config.json').read_text())
  assert saved['config']['num_steps'] == 200


def test_changed_configuration_exits_with_the_difference(tmp_path, capsys):
  start_and_save('--workdir=mine')
  before = (tmp_path / 'mine' / 'config.json').read_text()
  code, calls = start(
    '--workdir=mine',
    '--config.core.sizes=3,7',
    '--config.num_steps=200',
    '--config.learning_rate=0.5',
  )
  assert code == 77
  assert calls == []
  assert capsys.readouterr().err.splitlines()[1:] == [
    '  config.core.sizes: [3, 5] there, [3, 7] now',
    '  config.learning_rate: 0.001 there, 0.5 now',
  ]
  assert (tmp_path / 'mine' / 'config.json').read_text() == before


@pytest.mark.parametrize(
  'content', ['{"config": {', '[]', '{}', '{"config": 3}']
)
def test_invalid_saved_configuration_exits(tmp_path, capsys, content):
  start_and_save('--workdir=mine')
  (tmp_path / 'mine' / 'config.json').write_text(content)
  assert start('--workdir=mine') == (77, [])
  assert 'mine/config.json cannot be read' in capsys.readouterr().err
  assert (tmp_path / 'mine' / 'config.json').read_text() == content


def test_checkpoints_of_another_experiment_exit(tmp_path, capsys):
  start_and_save('--workdir=mine')
  path = tmp_path / 'mine' / 'config.json'
  path.write_text(path.read_text().replace('"toy"', '"other"'))
  assert start('--workdir=mine') == (77, [])
  assert 'holds a run of other, not of toy' in capsys.readouterr().err


def test_run_without_checkpoints_may_be_replaced(tmp_path):
  start('--workdir=mine')
  assert start('--workdir=mine', '--config.core.mem_slots=16')[0] == 0
  saved = json.loads((tmp_path / 'mine' / 'config.json').read_text())
  assert saved['config']['core']['mem_slots'] == 16


def test_checkpoints_without_a_configuration_exit(tmp_path, capsys):
  (tmp_path / 'mine' / 'checkpoints' / '10').mkdir(parents=True)
  assert start('--workdir=mine') == (77, [])
  assert 'no config.json' in capsys.readouterr().err


def snapshot(folder):
  """Returns path -> content and modification time, for a folder."""
  return {
    path: (
      path.read_bytes() if path.is_file() else b'',
      path.stat().st_mtime_ns,
    )
    for path in sorted(folder.rglob('*'))
  }


@pytest.mark.parametrize('checkpoint', [False, True])
def test_second_run_in_a_locked_workdir_changes_nothing(
  tmp_path, capsys, checkpoint
):
  _, [(_, workdir)] = start('--workdir=mine')
  (workdir / 'metrics.jsonl').write_text('{"step": 1}')
  if checkpoint:
    (workdir / 'checkpoints' / '10').mkdir(parents=True)
  before = snapshot(tmp_path)
  with acquire_lock(workdir):
    assert start('--workdir=mine', '--config.learning_rate=0.5') == (77, [])
    assert start('--workdir=mine') == (77, [])
  assert 'Another process is training in mine' in capsys.readouterr().err
  assert snapshot(tmp_path) == before
  # The command of the first run still works.
  assert start('--workdir=mine')[0] == 0


def test_run_of_an_earlier_version_exits(tmp_path, capsys):
  start_and_save('--workdir=mine')
  before = snapshot(tmp_path)

  @dataclasses.dataclass
  class NewConfig(Config):
    new: int = 0

  assert start('--workdir=mine', config_class=NewConfig) == (77, [])
  error = capsys.readouterr().err
  assert 'earlier version of rmc_jax, whose config.json has no new.' in error
  assert len(error.splitlines()) == 1
  assert snapshot(tmp_path) == before
