"""Tests launch/slurm.py: the script as printed, and what bash makes of it.

tests/launch/test_slurm_drill.py has a real Slurm run it.
"""

import os
import re
import shutil
import subprocess

import pytest

from launch import job
from launch import slurm


def printed(capsys, *arguments):
  assert slurm.main(['nth_farthest', '--dry_run', *arguments]) == 0
  return capsys.readouterr().out


def directives(text):
  return re.findall(r'^#SBATCH --(\S+?)(?:=(.*))?$', text, re.MULTILINE)


def test_a_task_for_each_gpu(capsys):
  text = printed(
      capsys, '--preset=paper', '--nodes=3', '--gpus_per_node=8',
      '--cpus_per_task=5', '--time=1-00:00:00', '--partition=long',
      '--account=mine', '--grace=240', '--sbatch=--constraint=a100',
  )  # fmt: skip
  assert dict(directives(text)) == {
    'job-name': 'nth_farthest',
    'nodes': '3',
    'ntasks-per-node': '8',
    'cpus-per-task': '5',
    'gpus-per-node': '8',
    'time': '1-00:00:00',
    'partition': 'long',
    'account': 'mine',
    'output': f'{os.getcwd()}/runs/slurm/%x-%j.log',
    'open-mode': 'append',
    'signal': 'TERM@240',
    'requeue': '',
    'constraint': 'a100',
  }


@pytest.mark.parametrize(
  ('flags', 'tasks'),
  [
    ([], '1'),
    (['--gpus_per_node=8', '--processes_per_node=2'], '2'),
    (['--processes_per_node=3'], '3'),
  ],
)
def test_processes_may_share_the_gpus_of_a_node(capsys, flags, tasks):
  assert dict(directives(printed(capsys, *flags)))['ntasks-per-node'] == tasks


def test_a_sweep_is_an_array(capsys):
  text = printed(capsys, '--sweep=quick_seeds', '--parallel=2')
  found = dict(directives(text))
  assert found['array'] == '0-4%2'
  assert found['output'].endswith('%x-%A_%a.log')
  for seed in range(5):
    workdir = f'runs/nth_farthest-quick_seeds/seed_{seed}'
    assert f'--config.seed={seed} --workdir={workdir})' in text


def test_without_slurm_it_says_where_to_go(capsys, monkeypatch):
  monkeypatch.setattr(slurm.shutil, 'which', lambda name: None)
  with pytest.raises(SystemExit) as ended:
    slurm.main(['nth_farthest'])
  assert ended.value.code == 77
  assert 'run this where jobs are submitted' in capsys.readouterr().err


@pytest.mark.skipif(
  not shutil.which('shellcheck'), reason='shellcheck is not installed'
)
@pytest.mark.parametrize('flags', [[], ['--sweep=quick_seeds']])
def test_shellcheck_finds_nothing(capsys, flags):
  checked = subprocess.run(
      ['shellcheck', '-'], input=printed(capsys, *flags),
      capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert checked.returncode == 0, checked.stdout


@pytest.fixture
def run_script(capsys, monkeypatch, tmp_path):
  """Runs the script beside an srun that ends with `code`; what came of it."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'runs/slurm').mkdir(parents=True)
  programs = tmp_path / 'bin'
  programs.mkdir()

  def put(name, *lines):
    (programs / name).write_text('\n'.join(['#!/bin/bash', *lines, '']))
    (programs / name).chmod(0o755)

  put('scontrol', 'echo "scontrol $*"')

  def run(code, *flags, signalled=False, task='0', more=()):
    # $PPID is the script.
    put(
      'srun',
      'echo "srun $*"',
      'kill -TERM $PPID' if signalled else ':',
      f'exit {code}',
    )
    environment = {
      'PATH': f'{programs}:{os.environ["PATH"]}',
      'SLURM_JOB_ID': '12',
      'SLURM_ARRAY_TASK_ID': task,
      **dict(more),
    }
    ended = subprocess.run(
        ['bash', '-s'], input=printed(capsys, *flags), env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not ended.stderr
    return ended.returncode, ended.stdout

  return run


@pytest.mark.parametrize('code', [0, 76, 77])
def test_what_is_over_is_not_queued_again(run_script, code):
  assert run_script(code)[0] == code
  assert 'scontrol' not in run_script(code)[1]


def test_the_tasks_run_the_trainer_of_their_run(run_script):
  _, said = run_script(0, '--sweep=quick_seeds', task='3')
  python = job.ROOT / '.venv/bin/python'
  assert said == (
    f'srun --label --kill-on-bad-exit=0 --wait=60 {python} -P -m '
    'experiments.nth_farthest.train --preset=quick --config.seed=3 '
    '--workdir=runs/nth_farthest-quick_seeds/seed_3\n'
  )


def test_a_preempted_job_is_queued_again_as_often_as_it_takes(run_script):
  for _ in range(9):
    assert 'scontrol requeue 12' in run_script(75)[1]


def test_where_slurm_ends_the_job_it_decides(run_script):
  code, said = run_script(75, signalled=True)
  assert code == 75
  assert 'scontrol' not in said


def test_crashes_have_a_budget(run_script):
  flags = ['--max_restarts=2']
  assert 'restart 1 of 2' in run_script(1, *flags)[1]
  assert 'scontrol requeue 12' in run_script(75, *flags)[1]
  assert 'restart 2 of 2' in run_script(134, *flags)[1]
  code, said = run_script(134, *flags)
  assert code == 134
  assert 'scontrol' not in said
  # Who then starts it again by hand begins anew.
  assert 'restart 1 of 2' in run_script(1, *flags)[1]


def test_a_task_of_an_array_speaks_for_itself_alone(run_script):
  flags = ['--sweep=quick_seeds', '--max_restarts=1']
  array = {'SLURM_ARRAY_JOB_ID': '12'}
  for task in '34':  # Each has its own budget.
    _, said = run_script(1, *flags, task=task, more=array)
    assert f'scontrol requeue 12_{task}\n' in said


def test_srun_is_told_the_cores_of_a_task(capsys):
  assert 'SRUN_CPUS_PER_TASK' not in printed(capsys)
  text = printed(capsys, '--cpus_per_task=5')
  assert text.index('export SRUN_CPUS_PER_TASK=5\n') < text.index('srun --')
