"""Tests launch/benchmark.sh: the benchmark, the environments, the exit code."""

import pathlib
import shutil
import subprocess

import pytest

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / 'launch'


@pytest.fixture
def checkout(tmp_path):
  """A checkout whose programs print their arguments."""
  (tmp_path / 'launch').mkdir()
  for name in ('benchmark.sh', 'benchmark_torch.txt'):
    shutil.copy(LAUNCH / name, tmp_path / 'launch')
  program(tmp_path / 'launch/setup.sh', 'echo set up')
  program(tmp_path / 'launch/parity.sh', 'echo "parity $*"')
  program(
    tmp_path / '.venv/bin/python',
    'if [ "$2" = venv ]; then',
    '  mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit 0',
    'fi',
    'if [ "$2" = pip ]; then',
    '  echo "pip ${4+$*}" | sed "s/.*--constraint/pip --constraint/"',
    '  exit ${PIP_EXIT:-0}',
    'fi',
    'echo "$PWD: $*"',
    'echo "$PYTHONPATH"',
    'exit 5',
  )
  pages = tmp_path / 'experiments/benchmarks'
  pages.mkdir(parents=True)
  for name in ('roofline', 'train', 'unroll'):
    (pages / f'{name}.py').write_text(
      "\nif __name__ == '__main__':\n  main()\n"
    )
  (pages / 'sizes.py').touch()
  return tmp_path


@pytest.mark.parametrize(
  ('given', 'run', 'original', 'torch'),
  [
    ([], 'unroll', True, True),
    (['--trials=9'], 'unroll --trials=9', True, True),
    (['train', '--sizes=a b'], 'train --sizes=a b', True, False),
    (['roofline', '--help'], 'roofline --help', False, False),
  ],
)
def test_installs_the_baselines_and_runs_in_the_current_folder(
  checkout, tmp_path_factory, given, run, original, torch
):
  elsewhere = tmp_path_factory.mktemp('elsewhere')
  out = benchmark(checkout, *given, cwd=elsewhere)
  assert out.stdout.splitlines() == [
    'set up',
    *['parity --setup-only'] * original,
    f'{elsewhere}: -P -m experiments.benchmarks.{run}',
    str(checkout),
  ]
  assert out.returncode == 5
  installs = f'pip --constraint {checkout}/launch/benchmark_torch.txt torch'
  assert (installs in out.stderr) == torch
  assert (checkout / '.benchmark/torch').exists() == torch


def test_torch_is_installed_once_and_again_for_other_pins(checkout):
  assert 'pip --' in benchmark(checkout, cwd=checkout).stderr
  assert 'pip --' not in benchmark(checkout, cwd=checkout).stderr
  with (checkout / 'launch/benchmark_torch.txt').open('a') as file:
    file.write('sympy==1.0\n')
  (checkout / '.benchmark/torch/stale').touch()
  assert 'pip --' in benchmark(checkout, cwd=checkout).stderr
  assert not (checkout / '.benchmark/torch/stale').exists()


def test_torch_can_be_installed_elsewhere(checkout):
  home = checkout / 'other place'
  benchmark(checkout, cwd=checkout, RMC_BENCHMARK_HOME=str(home))
  assert (home / 'torch').exists()
  assert not (checkout / '.benchmark').exists()


def test_runs_without_baselines_that_fail_to_install(checkout):
  program(checkout / 'launch/parity.sh', 'exit 77')
  out = benchmark(checkout, cwd=checkout, PIP_EXIT='1')
  assert out.returncode == 5
  assert 'the original will be left out' in out.stderr
  assert 'PyTorch will be left out' in out.stderr
  # A failed installation does not count as complete.
  assert 'pip --' in benchmark(checkout, cwd=checkout).stderr


@pytest.mark.parametrize('name', ['unrolled', 'sizes'])
def test_unknown_benchmark_lists_the_known_ones(checkout, name):
  out = benchmark(checkout, name, cwd=checkout)
  assert out.returncode == 77
  assert out.stdout == ''
  assert f"'{name}'" in out.stderr
  assert out.stderr.split()[-3:] == ['roofline', 'train', 'unroll']


def test_failed_setup_runs_nothing(checkout):
  program(checkout / 'launch/setup.sh', 'exit 77')
  out = benchmark(checkout, cwd=checkout)
  assert (out.returncode, out.stdout) == (77, '')


def benchmark(checkout, *args, cwd, **environment):
  return subprocess.run(
    [checkout / 'launch/benchmark.sh', *args],
    cwd=cwd,
    env={'PATH': '/usr/bin:/bin', **environment},
    capture_output=True,
    text=True,
    stdin=subprocess.DEVNULL,
  )


def program(path, *lines):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text('\n'.join(['#!/bin/sh', *lines, '']))
  path.chmod(0o755)
