"""Tests experiments/command_line.py."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

from absl import flags
from absl.testing import flagsaver
import jax
import jax.numpy as jnp
import pytest

from experiments import command_line
from rmc_jax.errors import ConfigurationError
from rmc_jax.errors import Diverged
from rmc_jax.errors import Preempted
from tests.experiments.toy_program import Config
from tests.experiments.toy_program import Core
from tests.experiments.toy_program import PRESETS
from tests.experiments.toy_program import start
from tests.training import jobs
from tests.training import toy_regression as toy

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  yield
  flags.FLAGS.unparse_flags()


def test_default_preset_and_workdir(tmp_path):
  code, [(config, workdir)] = start()
  assert code == 0
  assert config == Config()
  assert workdir == pathlib.Path('runs/toy-quick')


@pytest.mark.parametrize(
  'arguments',
  [
    ['--preset=paper', '--config.core.mem_slots=16'],
    ['--config.core.mem_slots=16', '--preset=paper'],
    ['--config.core.mem_slots', '16', '--preset', 'paper'],
  ],
)
def test_overrides_apply_on_top_of_the_preset_in_any_order(arguments):
  _, [(config, workdir)] = start(*arguments)
  assert config == Config(learning_rate=1, core=Core(mem_slots=16, key_size=2))
  assert workdir == pathlib.Path('runs/toy-paper')


def test_flagfile_may_hold_the_preset(tmp_path):
  (tmp_path / 'flags').write_text('--preset=paper\n--config.num_steps=7\n')
  _, [(config, _)] = start('--flagfile=flags')
  assert config.core.mem_slots == 8
  assert config.num_steps == 7


def test_flags_parse_every_type_of_field():
  _, [(config, _)] = start(
    '--config.learning_rate=2',
    '--noconfig.clip',
    '--config.core.key_size=6',
    '--config.core.sizes=7,11',
    '--config.core.gate_style=memory',
  )
  assert config == Config(
    learning_rate=2.0,
    clip=False,
    core=Core(key_size=6, sizes=(7, 11), gate_style='memory'),
  )


def test_starts_do_not_share_their_configuration():
  start('--preset=paper', '--config.core.mem_slots=16')
  _, [(config, _)] = start()
  assert config == Config()
  assert PRESETS['paper']['core'] == {'mem_slots': 8, 'key_size': 2}


@pytest.mark.parametrize(
  ('argument', 'sentence'),
  [
    (
      '--preset=papre',
      "There is no preset 'papre'. Did you mean paper? Presets: quick, paper.",
    ),
    (
      '--config.core.mem_slot=8',
      'There is no field config.core.mem_slot. Did you mean '
      'core.mem_slots? --print_config shows all fields.',
    ),
    (
      '--config.core=8',
      'There is no field config.core. --print_config shows all fields.',
    ),
    (
      '--config.core.mem_slots=many',
      "--config.core.mem_slots must be int, such as 4. Got: 'many'.",
    ),
    (
      '--config.core.key_size=1.5',
      "--config.core.key_size must be int. Got: '1.5'.",
    ),
    (
      '--config.core.mem_slots=0',
      'mem_slots must be at least 1. Got: 0.',
    ),
    (
      '--wrokdir=x',
      "Unknown command line flag 'wrokdir'. Did you mean: workdir ?",
    ),
    (
      'quick',
      "All arguments must be flags, such as --workdir=x. Got: 'quick'.",
    ),
    (
      '--num_processes=2',
      'A job of several processes needs all of coordinator_address, '
      'num_processes, process_id; missing: coordinator_address and process_id. '
      'Got: [2]. Pass all three, or none for a single process.',
    ),
  ],
)
def test_invalid_argument_exits_with_a_message(
  tmp_path, capsys, argument, sentence
):
  code, calls = start(argument)
  assert code == 77
  assert calls == []
  assert capsys.readouterr().err == f'toy: {sentence}\n'
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
  ('preset', 'sentence'),
  [
    (
      {'core': {'mem_slot': 8}},
      "Preset 'quick' sets core.mem_slot, which does not exist. Did you "
      'mean core.mem_slots?',
    ),
    (
      {'core': {'mem_slots': 8.0}},
      "Preset 'quick' sets core.mem_slots to 8.0; it must be int.",
    ),
    ({'clip': 1}, "Preset 'quick' sets clip to 1; it must be bool."),
    ({'core': 3}, "Preset 'quick' sets core to 3; it must be Core."),
  ],
)
def test_invalid_preset_exits_with_a_message(capsys, preset, sentence):
  code, calls = start(presets={'quick': preset})
  assert code == 77
  assert calls == []
  assert capsys.readouterr().err == f'toy: {sentence}\n'


def test_print_config_prints_json_and_exits(tmp_path, capsys):
  code, calls = start('--preset=paper', '--print_config', '--noconfig.clip')
  assert code == 0
  assert calls == []
  assert json.loads(capsys.readouterr().out) == {
    'experiment': 'toy',
    'preset': 'paper',
    'config': {
      'learning_rate': 1,
      'num_steps': 100,
      'clip': False,
      'core': {
        'mem_slots': 8,
        'gate_style': 'unit',
        'key_size': 2,
        'sizes': [3, 5],
      },
    },
  }
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
  ('error', 'code'),
  [(Preempted, 75), (Diverged, 76), (ConfigurationError, 77)],
)
def test_exit_codes(capsys, error, code):
  def stop():
    raise error('The reason.')

  assert start(train=stop)[0] == code
  assert capsys.readouterr().err == 'toy: The reason.\n'


def test_preempted_run_exits_with_75_and_resumes(tmp_path, capsys):
  def update(state, batch=None):
    if int(state.step) == 4:
      os.kill(os.getpid(), signal.SIGTERM)
    return toy.update()(state, batch)

  def train():
    toy.run(tmp_path, num_steps=8, update=update)

  assert start(train=train)[0] == 75
  assert 'Stopped at step 6 of 8' in capsys.readouterr().err
  assert start(train=train)[0] == 0


def test_diverged_run_exits_with_76(tmp_path, capsys):
  def loss_fn(*arguments):
    loss, aux = toy.loss_fn(*arguments)
    return loss * jnp.nan, aux

  def train():
    toy.run(tmp_path, update=toy.update(loss_fn=loss_fn))

  assert start(train=train)[0] == 76
  assert '2 of the 2 updates up to step 2' in capsys.readouterr().err


def test_other_errors_propagate():
  def crash():
    raise ZeroDivisionError

  with pytest.raises(ZeroDivisionError), flagsaver.flagsaver():
    command_line.main(
      lambda config, runner: crash(),
      Config,
      PRESETS,
      experiment='toy',
      argv=['train.py'],
    )


def test_failure_to_save_the_configuration_ends_a_process_of_a_job(
  monkeypatch,
):
  def save(workdir, text):
    raise OSError('The disk is full.')

  codes = []
  monkeypatch.setattr(command_line.configuration, 'save', save)
  monkeypatch.setattr(command_line, '_leave_if_in_job', codes.append)
  with pytest.raises(OSError, match='full'):
    start()
  assert codes == [1]


PAGE = '''"""The purpose of this experiment."""
import dataclasses
from experiments import command_line

@dataclasses.dataclass
class Config:
  num_steps: int = 3

def train(config, runner):
  import jax
  print(len(jax.devices()))

if __name__ == '__main__':
  command_line.main(train, Config, {'quick': {}}, experiment='page')
'''


def run_page(tmp_path, *arguments):
  (tmp_path / 'page.py').write_text(PAGE)
  environment = os.environ | {'XLA_FLAGS': '', 'PYTHONPATH': str(ROOT)}
  return subprocess.run(
    [sys.executable, 'page.py', *arguments],
    capture_output=True,
    text=True,
    env=environment,
    cwd=tmp_path,
    timeout=300,
  )


FAILING = """
import dataclasses, os, pathlib, sys, time
from experiments import command_line
from rmc_jax.training import distributed
from rmc_jax.errors import ConfigurationError

@dataclasses.dataclass
class Config:
  num_steps: int = 3

def train(config, runner):
  pid = runner.workdir / 'pid'
  if failing == 'both' or not distributed.is_primary():
    pid.with_suffix('.new').write_text(str(os.getpid()))
    pid.with_suffix('.new').rename(pid)
    raise ConfigurationError('Invalid.')
  while not pid.exists() or pathlib.Path('/proc', pid.read_text()).exists():
    time.sleep(0.1)
  print('The other process exited.', flush=True)
  os._exit(0)

workdir, failing, address, count, index = sys.argv[1:]
command_line.main(
    train, Config, {'quick': {}}, experiment='page',
    argv=['page', f'--workdir={workdir}', f'--coordinator_address={address}',
          f'--num_processes={count}', f'--process_id={index}'])
"""


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize(
  ('failing', 'first'),
  [
    # One process exits without waiting for the other.
    ('one', (0, 'The other process exited.\n')),
    ('both', (77, 'page: Invalid.\n')),
  ],
)
def test_configuration_error_ends_a_process_of_a_job(tmp_path, failing, first):
  ended = jobs.run(['-c', FAILING], [[tmp_path, failing]] * 2, devices=1)
  # gloo logs the first exchange between processes.
  gloo = re.compile(r'^\[Gloo\].*\n', re.MULTILINE)
  assert [(code, gloo.sub('', output)) for code, output in ended] == [
      first, (77, 'page: Invalid.\n'),
  ]  # fmt: skip


@pytest.mark.parametrize(
  ('quota', 'cores'),
  [
    ('max 100000', 13),
    ('350000 100000', 3),
    ('50000 100000', 1),
    ('9900000 100000', 13),
    (None, 13),
  ],
)
def test_cores_respect_affinity_and_quota(tmp_path, monkeypatch, quota, cores):
  path = tmp_path / 'cpu.max'
  if quota is not None:
    path.write_text(quota + '\n')
  monkeypatch.setattr(command_line, '_CPU_QUOTA', path)
  monkeypatch.setattr(
    os, 'sched_getaffinity', lambda process: set(range(13)), raising=False
  )
  assert command_line._cores() == cores


@pytest.mark.parametrize(('cores', 'devices'), [(1, 1), (7, 4), (64, 8)])
def test_default_cpu_devices(monkeypatch, cores, devices):
  updated = {}
  monkeypatch.setenv('XLA_FLAGS', '')
  monkeypatch.delenv('JAX_NUM_CPU_DEVICES', raising=False)
  monkeypatch.setattr(command_line, '_cores', lambda: cores)
  monkeypatch.setattr(jax.config, 'update', updated.__setitem__)
  assert start()[0] == 0
  assert updated['jax_num_cpu_devices'] == devices


@pytest.mark.slow
def test_help_describes_the_experiment(tmp_path):
  output = run_page(tmp_path, '--help').stdout
  assert 'The purpose of this experiment.' in output
  for flag in ('--preset', '--workdir', '--[no]print_config', '--cpu_devices'):
    assert flag in output


@pytest.mark.slow
def test_cpu_devices_flag(tmp_path):
  done = run_page(tmp_path, '--cpu_devices=3')
  assert done.stdout == '3\n', done.stderr
  assert done.stderr == ''
