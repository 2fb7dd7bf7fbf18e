"""Tests `launch.slurm`: its flags, and the script under bash with a fake srun.

tests/launch/goldens/ has whole scripts; tests/launch/test_slurm_drill.py runs
one on a real Slurm.
"""

import os
import re
import subprocess

import pytest

from launch import job
from launch import slurm
from tests.launch.programs import write_program


def dry_run(capsys, *arguments):
  assert slurm.main(['nth_farthest', '--dry_run', *arguments]) == 0
  return capsys.readouterr().out


def directives(text):
  return dict(re.findall(r'^#SBATCH --(\S+?)(?:=(.*))?$', text, re.MULTILINE))


@pytest.mark.parametrize(
  ('flags', 'tasks'),
  [
    ([], '1'),
    (['--gpus_per_node=8'], '8'),
    (['--gpus_per_node=8', '--processes_per_node=2'], '2'),
    (['--processes_per_node=3'], '3'),
  ],
)
def test_number_of_tasks(capsys, flags, tasks):
  assert directives(dry_run(capsys, *flags))['ntasks-per-node'] == tasks


def test_missing_sbatch_is_reported(capsys, monkeypatch):
  monkeypatch.setattr(slurm.shutil, 'which', lambda name: None)
  with pytest.raises(SystemExit) as exit_info:
    slurm.main(['nth_farthest'])
  assert exit_info.value.code == 77
  assert 'sbatch' in capsys.readouterr().err


@pytest.fixture
def run_script(capsys, monkeypatch, tmp_path):
  """Runs the script with an srun that exits with `code`.

  Returns the exit code and the output.
  """
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'runs/slurm').mkdir(parents=True)
  programs = tmp_path / 'bin'
  write_program(programs / 'scontrol', 'echo "scontrol $*"')

  def run(code, *flags, signalled=False, task='0', more=()):
    write_program(
      programs / 'srun',
      'echo "srun $*"',
      # $PPID is the script.
      'kill -TERM $PPID' if signalled else ':',
      f'exit {code}',
    )
    environment = {
      'PATH': f'{programs}:{os.environ["PATH"]}',
      'SLURM_JOB_ID': '12',
      'SLURM_ARRAY_TASK_ID': task,
      **dict(more),
    }
    completed = subprocess.run(
        ['bash', '-s'], input=dry_run(capsys, *flags), env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not completed.stderr
    return completed.returncode, completed.stdout

  return run


@pytest.mark.parametrize('code', [0, 76, 77])
def test_final_exit_codes_are_not_requeued(run_script, code):
  returned, output = run_script(code)
  assert returned == code
  assert 'scontrol' not in output


def test_array_task_runs_its_run(run_script):
  _, output = run_script(0, '--sweep=quick_seeds', task='3')
  _, runs = job.parse(slurm._parser(), ['nth_farthest', '--sweep=quick_seeds'])
  command = ' '.join(runs[3].command(str(job.ROOT / '.venv/bin/python')))
  assert output == f'srun --label --kill-on-bad-exit=0 --wait=60 {command}\n'


def test_preempted_job_is_requeued_without_limit(run_script):
  for _ in range(9):
    assert 'scontrol requeue 12' in run_script(75)[1]


def test_job_ended_by_slurm_is_not_requeued(run_script):
  code, output = run_script(75, signalled=True)
  assert code == 75
  assert 'scontrol' not in output


def test_number_of_restarts_is_limited(run_script):
  flags = ['--max_restarts=2']
  assert 'restart 1 of 2' in run_script(1, *flags)[1]
  assert 'scontrol requeue 12' in run_script(75, *flags)[1]
  assert 'restart 2 of 2' in run_script(134, *flags)[1]
  code, output = run_script(134, *flags)
  assert code == 134
  assert 'scontrol' not in output
  # A job that is then requeued by hand starts to count again.
  assert 'restart 1 of 2' in run_script(1, *flags)[1]


def test_array_task_requeues_only_itself(run_script):
  flags = ['--sweep=quick_seeds', '--max_restarts=1']
  array = {'SLURM_ARRAY_JOB_ID': '12'}
  for task in '34':  # Each has its own count.
    _, output = run_script(1, *flags, task=task, more=array)
    assert f'scontrol requeue 12_{task}\n' in output
