"""Tests the choices of launch/setup.sh and find_python.sh; installs nothing."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.launch.programs import write_program

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / 'launch'


@pytest.fixture
def programs(tmp_path):
  """Adds programs to a folder that comes first on PATH."""

  def add(name, *lines):
    write_program(tmp_path / name, *lines)

  add.path = f'{tmp_path}:{os.environ["PATH"]}'
  return add


@pytest.mark.parametrize(
  ('gpus', 'chosen'),
  [
    ('echo 580.65.06, 9.0', 'cuda13'),
    ('echo 580.65.06, 7.0', 'cuda12'),  # CUDA 13 does not support Volta.
    ('echo 580.65.06, 9.0; echo 580.65.06, 7.0', 'cuda12'),
    ('echo 535.129.03, 8.0', 'cuda12'),
    ('echo 470.239.06, 8.0', 'cpu'),  # Too old for both.
    ('echo No devices were found', 'cpu'),
    ('exit 9', 'cpu'),  # The driver is not loaded.
  ],
)
def test_gpu_and_driver_select_the_build_of_jax(
  programs, tmp_path, gpus, chosen
):
  programs('nvidia-smi', gpus)
  commands = setup('--dry-run', tmp_path / 'venv', PATH=programs.path).stderr
  extras = 'analysis,data,rl,test'
  extras = f'[{extras}]' if chosen == 'cpu' else f'[{extras},{chosen}]'
  assert extras in commands
  assert 'requirements.txt' in commands
  assert not (tmp_path / 'venv').exists()


def test_accelerator_variable_overrides_detection(programs, tmp_path):
  programs('nvidia-smi', 'echo 580.65.06, 9.0')
  for name in ('cuda12', 'tpu'):
    out = setup(
      '--dry-run', tmp_path / 'venv', PATH=programs.path, ACCELERATOR=name
    )
    assert f'[analysis,data,rl,test,{name}]' in out.stderr


def test_invalid_variable_is_refused_with_its_value(programs, tmp_path):
  out = setup(tmp_path / 'venv', ACCELERATOR='cuda11')
  assert (out.returncode, 'cuda11' in out.stderr) == (77, True)
  programs('python-too-old', 'exit 1')
  out = setup(tmp_path / 'venv', PYTHON=str(tmp_path / 'python-too-old'))
  assert (out.returncode, 'python-too-old' in out.stderr) == (77, True)
  assert not (tmp_path / 'venv').exists()


def test_other_folder_is_refused_and_unchanged(tmp_path):
  (tmp_path / 'thesis.tex').touch()
  out = setup(tmp_path)
  assert out.returncode == 77
  assert str(tmp_path) in out.stderr
  assert (tmp_path / 'thesis.tex').exists()


def test_python_that_does_not_run_is_skipped(programs):
  for name in ('python3.14', 'python3.13', 'python3.12', 'python3.11'):
    programs(name, 'echo "command not found" >&2', 'exit 127')
  programs('python', f'exec {sys.executable} "$@"')
  ours = f'{sys.version_info.major}.{sys.version_info.minor}'
  out = find_python(ours, ours, PATH=programs.path)
  assert out.returncode == 0
  version = subprocess.run(
    [out.stdout.strip(), '-V'], capture_output=True, text=True
  ).stdout
  assert version.startswith(f'Python {ours}.')


def test_no_python_in_range_is_an_error_without_output(tmp_path):
  out = find_python('3.98', '3.99', PYENV_ROOT=str(tmp_path))
  assert (out.returncode, out.stdout) == (1, '')


def setup(*args, **environment):
  return bash('setup.sh', *args, **environment)


def find_python(*args, **environment):
  return bash('find_python.sh', *args, **environment)


def bash(script, *args, **environment):
  without = {'PYTHON', 'ACCELERATOR'}
  inherited = {k: v for k, v in os.environ.items() if k not in without}
  return subprocess.run(
    [LAUNCH / script, *map(str, args)],
    env={**inherited, **environment},
    capture_output=True,
    text=True,
    stdin=subprocess.DEVNULL,
  )
