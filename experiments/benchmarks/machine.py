"""Describes the machine, the commit and the command of a benchmark."""

from collections.abc import Sequence
import os
import pathlib
import platform
import shutil
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
  if not shutil.which('nvidia-smi'):
    return None
  command = ['nvidia-smi', '--query-gpu=name', '--format=csv,noheader']
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  models = done.stdout.splitlines()
  return models[0] if done.returncode == 0 and models else None


def _processor() -> str:
  path = pathlib.Path('/proc/cpuinfo')
  if path.exists():
    for line in path.read_text().splitlines():
      if line.startswith('model name'):
        return line.split(':', 1)[1].strip()
  return platform.processor() or platform.machine()


def _commit() -> str:
  """Returns the commit of the checkout; a plus marks uncommitted changes."""
  try:
    commit = _git('rev-parse', '--short', 'HEAD').strip()
    return commit + ('+' if _git('status', '--porcelain', '-uno') else '')
  except (OSError, subprocess.CalledProcessError):
    return 'unknown'


def _git(*arguments: str) -> str:
  return subprocess.run(
    ['git', '-C', CHECKOUT, *arguments],
    capture_output=True,
    text=True,
    check=True,
  ).stdout
