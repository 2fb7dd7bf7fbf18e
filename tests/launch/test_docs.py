"""Tests docs/launching.md: every dry run on it is what is printed."""

import importlib
import re
import shlex

import pytest

from launch import job
from launch import local

PAGE = job.ROOT / 'docs/launching.md'
BLOCKS = re.findall(
  r'^```console\n\$ (.*?)\n(.*?)^```$', PAGE.read_text(), re.M | re.S
)


def test_every_launcher_is_on_the_page():
  launchers = {shlex.split(command)[2] for command, _ in BLOCKS}
  assert launchers == {
    f'launch.{name}' for name in ('local', 'slurm', 'tpu_vm', 'kubernetes')
  }


@pytest.mark.parametrize(('command', 'printed'), BLOCKS)
def test_a_dry_run_prints_what_the_page_says(
  monkeypatch, capsys, command, printed
):
  monkeypatch.setattr(local, '_cores', lambda: list('0123'))
  monkeypatch.setattr(local, '_gpus', list)
  monkeypatch.setattr(local.shutil, 'which', lambda name: f'/usr/bin/{name}')
  monkeypatch.delenv('PYTHONPATH', raising=False)
  monkeypatch.delenv('GLIBC_TUNABLES', raising=False)
  monkeypatch.chdir(job.ROOT)
  _, _, module, *arguments = shlex.split(command)
  assert importlib.import_module(module).main(arguments) == 0
  out = capsys.readouterr().out.replace(str(job.ROOT), '/nfs/me/rmc_jax')
  assert out == printed
