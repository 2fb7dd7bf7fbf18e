"""Tests the scripts of launch/skypilot.yaml in a fake checkout."""

import os
import shutil
import subprocess

import pytest
import yaml

from launch import job
from tests.launch.programs import write_program

TASK = yaml.safe_load((job.ROOT / 'launch/skypilot.yaml').read_text())
SCRIPTS = ('setup', 'run')


@pytest.fixture
def machine(tmp_path):
  """Runs a script of the file; returns the completed process.

  The fake Python prints its folder and arguments, and exits with 75.
  """
  checkout, home = tmp_path / 'checkout', tmp_path / 'home'
  write_program(checkout / 'launch/setup.sh', 'echo "setup with ${PYTHON-any}"')
  write_program(
    checkout / '.venv/bin/python',
    'printf "%s\\n" "$PWD" "$PYTHONPATH" "$@"',
    'exit 75',
  )
  write_program(
    home / '.local/bin/uv',
    '[ "$*" = "python install 3.12" ] && exit ${INSTALL_EXIT:-0}',
    '[ "$*" = "python find --system 3.12" ] && echo /uv/python3.12',
  )
  shutil.copy(job.ROOT / 'launch/train.sh', checkout / 'launch')
  (checkout / 'experiments/nth_farthest').mkdir(parents=True)
  (checkout / 'experiments/nth_farthest/sweep.py').touch()
  (tmp_path / 'bucket').mkdir()
  (mount,) = TASK['file_mounts']

  def run(script, bucket='bucket', **environment):
    text = TASK[script].replace(f'cd {mount} ', f'cd {tmp_path / bucket} ')
    return subprocess.run(
        ['bash', '-c', text],
        cwd=checkout,
        env={'PATH': os.environ['PATH'], 'HOME': str(home), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

  return run


def variables(rank, *addresses, **envs):
  """Returns the environment of `run`: SkyPilot's variables and the file's."""
  own = {name: value or '' for name, value in TASK['envs'].items()}
  return (
    own
    | envs
    | {
      'SKYPILOT_NODE_RANK': str(rank),
      'SKYPILOT_NODE_IPS': '\n'.join(addresses),
      'SKYPILOT_NUM_NODES': str(len(addresses)),
    }
  )


def test_each_machine_gets_its_rank(machine, tmp_path):
  completed = machine('run', **variables(1, '10.0.0.7', '10.0.0.5', '10.0.0.6'))
  assert completed.returncode == 75
  assert completed.stderr == ''
  assert completed.stdout.splitlines() == [
      'setup with any',
      str(tmp_path / 'bucket'), str(tmp_path / 'checkout'),
      '-P', '-m', 'experiments.nth_farthest.train', '--preset=paper',
      '--cluster=none', '--coordinator_address=10.0.0.7:8476',
      '--num_processes=3', '--process_id=1',
  ]  # fmt: skip


def test_single_machine_needs_no_coordinator(machine):
  flags = '--preset=quick --config.depth=3 --config.name=*'
  completed = machine('run', **variables(0, '10.0.0.7', FLAGS=flags))
  assert completed.stdout.splitlines()[5:] == [
      'experiments.nth_farthest.train', '--preset=quick', '--config.depth=3',
      '--config.name=*', '--cluster=none',
  ]  # fmt: skip


def test_flags_may_be_empty(machine):
  completed = machine('run', **variables(0, '10.0.0.7', FLAGS=''))
  assert completed.stdout.splitlines()[5:] == [
    'experiments.nth_farthest.train',
    '--cluster=none',
  ]


def test_missing_bucket_prevents_training(machine):
  completed = machine('run', bucket='nowhere', **variables(0, '10.0.0.7'))
  assert (completed.returncode, completed.stdout) == (77, '')
  assert 'nowhere' in completed.stderr


def test_setup_uses_the_python_of_uv(machine):
  assert machine('setup').stdout == 'setup with /uv/python3.12\n'
  failed = machine('setup', INSTALL_EXIT='2')
  assert (failed.returncode, failed.stdout) == (2, '')


def test_preempted_runs_are_restarted_without_limit():
  assert TASK['resources']['use_spot'] is True
  assert TASK['resources']['job_recovery'] == {
    'recover_on_exit_codes': [job.PREEMPTED],
    'max_restarts_on_errors': 3,
  }
  assert TASK['envs']['EXPERIMENT'] in job.experiments()
  assert TASK['envs']['BUCKET'] is None  # SkyPilot then requires --env BUCKET.
  (mount,) = TASK['file_mounts'].values()
  assert mount == {'source': '${BUCKET}', 'mode': 'MOUNT'}


@pytest.mark.skipif(
  not shutil.which('shellcheck'), reason='shellcheck is not installed'
)
@pytest.mark.parametrize('script', SCRIPTS)
def test_shellcheck_accepts_the_scripts(script):
  checked = subprocess.run(
      ['shellcheck', '--shell=bash', '-'], input=TASK[script],
      capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert checked.returncode == 0, checked.stdout
