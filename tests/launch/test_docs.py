"""Checks that the commands in docs/launching.md work, as dry runs.

Flags that a launcher does not have must be flags of the trainer.
"""

import importlib
import re
import shlex
import subprocess
import sys

import pytest

from launch import job
from launch import local

LAUNCHERS = ('local', 'slurm', 'kubernetes', 'skypilot')
PAGE = (job.ROOT / 'docs/launching.md').read_text()
# In code blocks with continuation lines, or between backticks.
COMMANDS = sorted(
  {
    ' '.join(command.replace('\\\n', ' ').split())
    for command in re.findall(
      r'python -m (launch\.(?:[^`\n\\]|\\\n)+)', PAGE.replace('\\|', '|')
    )
  }
)


def split(command):
  """Returns the launcher's module and the arguments."""
  module, *arguments = shlex.split(command)
  return importlib.import_module(module), arguments


def test_page_has_a_command_of_every_launcher():
  modules = {command.split()[0] for command in COMMANDS}
  assert modules == {f'launch.{name}' for name in LAUNCHERS}


@pytest.mark.parametrize('command', COMMANDS)
def test_command_on_the_page_works(monkeypatch, capsys, command):
  monkeypatch.setattr(local, '_gpus', list)
  module, arguments = split(command)
  assert module.main([*arguments, '--dry_run']) == 0
  assert capsys.readouterr().out


def test_trainer_has_the_other_flags_on_the_page():
  programs = {}
  for command in COMMANDS:
    module, arguments = split(command)
    _, runs = job.parse(module._parser(), arguments)
    for run in runs:
      flags = programs.setdefault(run.experiment, set())
      flags |= {flag for flag in run.flags if flag.startswith('--config')}
  for experiment, flags in programs.items():
    completed = subprocess.run(
      [
        *(sys.executable, '-m', f'experiments.{experiment}.train'),
        *('--print_config', *sorted(flags)),
      ],
      cwd=job.ROOT,
      capture_output=True,
      text=True,
    )
    assert completed.returncode == 0, completed.stderr
