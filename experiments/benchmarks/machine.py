"""Describes the machine, the commit and the command of a benchmark."""

from collections.abc import Sequence
import os
import pathlib
import platform
import re
import subprocess
from typing import Any

from rmc_jax.parity.reference import CHECKOUT


def describe(command: str, arguments: Sequence[str]) -> dict[str, Any]:
  """Returns the machine, the commit and the command, without host and paths.

  A plus after the commit marks uncommitted changes.

  Args:
    command: e.g. 'python -m experiments.benchmarks.unroll'.
    arguments: its flags, each one string; --output is dropped.
  """
  kept = [a for a in arguments if not a.startswith('--output')]
  git = 'git', '-C', str(CHECKOUT)
  commit = _output(*git, 'rev-parse', '--short', 'HEAD') or 'unknown'
  changes = _output(*git, 'status', '--porcelain', '-uno')
  return {
    'command': ' '.join([command, *kept]),
    'commit': commit + '+' * bool(changes),
    'processor': _processor(),
    'cores': cores(),
    'gpu': gpu(),
    'system': f'{platform.system()} {platform.machine()}',
  }


def cores() -> int:
  """Returns the number of cores that this process may use."""
  if hasattr(os, 'sched_getaffinity'):  # Not on macOS.
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def gpu() -> str | None:
  """Returns the model of the first NVIDIA GPU; None without one."""
  models = _output('nvidia-smi', '--query-gpu=name', '--format=csv,noheader')
  return models.splitlines()[0] if models else None


def _processor() -> str:
  path = pathlib.Path('/proc/cpuinfo')
  text = path.read_text() if path.exists() else ''
  model = re.search(r'^model name\s*: (.*)$', text, re.MULTILINE)
  return model[1] if model else platform.processor() or platform.machine()


def _output(*command: str) -> str:
  """Returns what a program prints; '' where it is missing or fails."""
  try:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
  except (OSError, subprocess.CalledProcessError):
    return ''
  return done.stdout.strip()
