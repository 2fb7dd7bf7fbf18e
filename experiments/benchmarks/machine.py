"""Describes the machine, the commit and the command of a benchmark."""

from collections.abc import Sequence
import os
import pathlib
import platform
import subprocess
from typing import Any

CHECKOUT = pathlib.Path(__file__).parents[2]


def describe(command: str, arguments: Sequence[str]) -> dict[str, Any]:
  """Returns the machine, the commit and the command, without host and paths.

  Args:
    command: e.g. 'python -m experiments.benchmarks.unroll'.
    arguments: its flags, each one string; --output is dropped.
  """
  kept = [a for a in arguments if not a.startswith('--output')]
  return {
    'command': ' '.join([command, *kept]),
    'commit': _commit(),
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
  if path.exists():
    for line in path.read_text().splitlines():
      if line.startswith('model name'):
        return line.split(':', 1)[1].strip()
  return platform.processor() or platform.machine()


def _commit() -> str:
  """Returns the commit of the checkout; a plus marks uncommitted changes."""
  git = 'git', '-C', str(CHECKOUT)
  commit = _output(*git, 'rev-parse', '--short', 'HEAD')
  changes = _output(*git, 'status', '--porcelain', '-uno')
  return (commit or 'unknown') + ('+' if changes else '')


def _output(*command: str) -> str:
  """Returns what a program prints; '' where it is missing or fails."""
  try:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
  except (OSError, subprocess.CalledProcessError):
    return ''
  return done.stdout.strip()
