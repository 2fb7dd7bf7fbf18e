"""Tests rmc_jax/parity/reference.py, except for what needs TensorFlow."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from rmc_jax.parity import reference
from rmc_jax.parity.reference import Computation
from rmc_jax.parity.reference import Reference
from tests.launch.programs import write_program


def test_not_installed(monkeypatch, tmp_path):
  monkeypatch.setenv('RMC_PARITY_HOME', str(tmp_path))
  with pytest.raises(FileNotFoundError, match=r'launch/parity\.sh'):
    reference.find()
  with pytest.raises(FileNotFoundError, match='nowhere/python'):
    reference.find('nowhere/python')


def test_old_sonnet_not_installed(monkeypatch, tmp_path):
  monkeypatch.setenv('RMC_PARITY_HOME', str(tmp_path))
  with pytest.raises(FileNotFoundError, match=r'dm-sonnet 1\.26'):
    reference.find_1_26(sys.executable)
  (tmp_path / 'sonnet-1.26').mkdir()
  found = reference.find_1_26(sys.executable)
  assert found.sonnet_path == tmp_path / 'sonnet-1.26'


def test_a_failure_has_the_error_output_of_the_original():
  # This interpreter has no TensorFlow.
  computation = Computation(
    'a', 'linear', {'size': 3}, {'inputs': np.zeros([1, 2])}
  )
  with pytest.raises(RuntimeError, match="No module named 'tensorflow'"):
    Reference(pathlib.Path(sys.executable)).run([computation])


def test_tensorflow_does_not_get_the_flags_of_our_xla(monkeypatch, tmp_path):
  python = tmp_path / 'python'
  write_program(python, 'echo "flags: $XLA_FLAGS." >&2', 'exit 1')
  monkeypatch.setenv('XLA_FLAGS', '--xla_of_a_newer_version=true')
  with pytest.raises(RuntimeError, match=r'flags: \.'):
    Reference(python).run([Computation('a', 'linear', {}, {})])


def test_duplicate_names_are_refused():
  computation = Computation('a', 'linear', {}, {})
  with pytest.raises(ValueError, match=r"\['a', 'a'\]"):
    Reference(pathlib.Path(sys.executable)).run([computation, computation])


def test_the_runner_is_stand_alone():
  assert not re.search(
    r'^\s*(import|from) rmc_jax', reference.RUNNER.read_text(), re.MULTILINE
  )
  # Without any package of ours, it starts and fails for want of an argument.
  done = subprocess.run(
    [sys.executable, '-I', reference.RUNNER],
    capture_output=True,
    text=True,
    check=False,
  )
  assert 'IndexError' in done.stderr
