"""Tests rmc_jax/parity/reference.py, as far as it goes without TensorFlow."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from rmc_jax.parity import reference
from rmc_jax.parity.reference import Case
from rmc_jax.parity.reference import Reference


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


def test_a_failure_says_what_the_original_wrote():
  # This interpreter has no TensorFlow.
  case = Case('a', 'linear', {'size': 3}, {'inputs': np.zeros([1, 2])})
  with pytest.raises(RuntimeError, match="No module named 'tensorflow'"):
    Reference(pathlib.Path(sys.executable)).run([case])


def test_cases_of_one_name_are_refused():
  case = Case('a', 'linear', {}, {})
  with pytest.raises(ValueError, match=r"\['a', 'a'\]"):
    Reference(pathlib.Path(sys.executable)).run([case, case])


def test_the_runner_needs_nothing_of_ours():
  source = reference.RUNNER.read_text()
  code = source.replace('imports nothing of rmc_jax', '')
  assert 'rmc_jax' not in code
  # In a bare interpreter, it gets as far as its arguments.
  done = subprocess.run(
    [sys.executable, '-I', reference.RUNNER],
    capture_output=True,
    text=True,
    check=False,
  )
  assert 'IndexError' in done.stderr
