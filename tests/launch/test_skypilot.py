"""Tests launch/skypilot.yaml: what its scripts do on machines as SkyPilot's."""

import os
import shutil
import subprocess

import pytest
import yaml

from launch import job

TASK = yaml.safe_load((job.ROOT / 'launch/skypilot.yaml').read_text())
SCRIPTS = ('setup', 'run')


@pytest.fixture
def machine(tmp_path):
  """Runs a script of the file in a copy of the checkout; what came of it.

  The Python there tells where it was started and with what, and ends with 75.
  """
  checkout, home = tmp_path / 'checkout', tmp_path / 'home'
  program(checkout / 'launch/setup.sh', 'echo "set up with ${PYTHON-any}"')
  program(
    checkout / '.venv/bin/python',
    'printf "%s\\n" "$PWD" "$PYTHONPATH" "$@"',
    'exit 75',
  )
  program(
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
    there = TASK[script].replace(f'cd {mount} ', f'cd {tmp_path / bucket} ')
    return subprocess.run(
        ['bash', '-c', there],
        cwd=checkout,
        env={'PATH': os.environ['PATH'], 'HOME': str(home), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

  return run


def variables(rank, *addresses, **envs):
  """The environment of `run`: SkyPilot's variables and the file's own."""
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


def test_each_machine_knows_its_place(machine, tmp_path):
  ended = machine('run', **variables(1, '10.0.0.7', '10.0.0.5', '10.0.0.6'))
  assert ended.returncode == 75
  assert ended.stderr == ''
  assert ended.stdout.splitlines() == [
      'set up with any',
      str(tmp_path / 'bucket'), str(tmp_path / 'checkout'),
      '-P', '-m', 'experiments.nth_farthest.train', '--preset=paper',
      '--cluster=none', '--coordinator_address=10.0.0.7:8476',
      '--num_processes=3', '--process_id=1',
  ]  # fmt: skip


def test_a_machine_alone_is_in_no_job(machine):
  flags = '--preset=quick --config.seed=3 --config.name=*'
  ended = machine('run', **variables(0, '10.0.0.7', FLAGS=flags))
  assert ended.stdout.splitlines()[5:] == [
      'experiments.nth_farthest.train', '--preset=quick', '--config.seed=3',
      '--config.name=*', '--cluster=none',
  ]  # fmt: skip


def test_the_trainer_may_need_no_flags(machine):
  ended = machine('run', **variables(0, '10.0.0.7', FLAGS=''))
  assert ended.stdout.splitlines()[5:] == [
    'experiments.nth_farthest.train',
    '--cluster=none',
  ]


def test_without_the_bucket_nothing_is_trained(machine):
  ended = machine('run', bucket='nowhere', **variables(0, '10.0.0.7'))
  assert (ended.returncode, ended.stdout) == (77, '')
  assert 'nowhere' in ended.stderr


def test_it_is_set_up_with_a_python_that_is_new_enough(machine):
  assert machine('setup').stdout == 'set up with /uv/python3.12\n'
  failed = machine('setup', INSTALL_EXIT='2')
  assert (failed.returncode, failed.stdout) == (2, '')


def test_preempted_runs_are_restarted_without_counting():
  assert TASK['resources']['use_spot'] is True
  assert TASK['resources']['job_recovery'] == {
    'recover_on_exit_codes': [job.PREEMPTED],
    'max_restarts_on_errors': 3,
  }
  assert TASK['envs']['EXPERIMENT'] in job.experiments()
  assert TASK['envs']['BUCKET'] is None  # SkyPilot then asks for it.
  (mount,) = TASK['file_mounts'].values()
  assert mount == {'source': '${BUCKET}', 'mode': 'MOUNT'}


@pytest.mark.skipif(
  not shutil.which('shellcheck'), reason='shellcheck is not installed'
)
@pytest.mark.parametrize('script', SCRIPTS)
def test_shellcheck_finds_nothing(script):
  checked = subprocess.run(
      ['shellcheck', '--shell=bash', '-'], input=TASK[script],
      capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert checked.returncode == 0, checked.stdout


def program(path, *lines):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text('\n'.join(['#!/bin/sh', *lines, '']))
  path.chmod(0o755)
