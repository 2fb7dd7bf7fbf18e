"""Tests launch/skypilot.py: its scripts in a fake checkout, and its tasks."""

import json
import os
import runpy
import shutil
import subprocess
import sys

import pytest
import yaml

from launch import job
from launch import skypilot
from tests.launch.programs import write_program

GPUS = ('--gpus=A100:8', '--nodes=3')
TPU = ('--tpu=v5e-16',)
SKYPILOT = 'skypilot==0.14.1'
# Reads a task from the standard input, as `sky jobs launch` does.
READ_TASK = """
import json, sys, yaml
import sky
task = sky.Task.from_yaml_config(yaml.safe_load(sys.stdin))
(resources,) = task.resources
print(json.dumps({
  'nodes': task.num_nodes,
  'accelerators': resources.accelerators,
  'arguments': resources.accelerator_args,
  'spot': resources.use_spot,
  'recovery': resources.job_recovery,
  'variables': task.envs,
}))
"""


def render(*arguments, experiment='nth_farthest'):
  """Returns the task of one run."""
  options, (run,) = job.parse(
    skypilot._parser(), [experiment, '--bucket=gs://mine', *arguments]
  )
  skypilot._check(options)
  return skypilot.task(options, run)


@pytest.fixture
def machine(tmp_path):
  """Runs a script of a task; returns the completed process.

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

  def run(task, script, bucket='bucket', **environment):
    content = yaml.safe_load(task)
    (mount,) = content['file_mounts']
    text = content[script].replace(f'cd {mount} ', f'cd {tmp_path / bucket} ')
    return subprocess.run(
        ['bash', '-c', text],
        cwd=checkout,
        env={'PATH': os.environ['PATH'], 'HOME': str(home), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

  return run


def variables(rank, *addresses):
  """Returns the variables that SkyPilot sets on a machine."""
  return {
    'SKYPILOT_NODE_RANK': str(rank),
    'SKYPILOT_NODE_IPS': '\n'.join(addresses),
    'SKYPILOT_NUM_NODES': str(len(addresses)),
  }


def test_each_machine_gets_its_rank(machine, tmp_path):
  addresses = '10.0.0.7', '10.0.0.5', '10.0.0.6'
  task = render(*GPUS, '--preset=paper', '--config.core.name=a *')
  completed = machine(task, 'run', **variables(1, *addresses))
  assert completed.returncode == 75
  assert completed.stderr == ''
  assert completed.stdout.splitlines() == [
      'setup with any',
      str(tmp_path / 'bucket'), str(tmp_path / 'checkout'),
      '-P', '-m', 'experiments.nth_farthest.train',
      '--initialization_timeout=3600', '--preset=paper',
      '--config.core.name=a *',
      '--workdir=gs://mine/runs/nth_farthest-paper', '--cluster=none',
      '--coordinator_address=10.0.0.7:8476', '--num_processes=3',
      '--process_id=1',
  ]  # fmt: skip


def test_single_machine_needs_no_coordinator(machine):
  task = render('--gpus=A100:8')
  completed = machine(task, 'run', **variables(0, '10.0.0.7'))
  assert completed.stdout.splitlines()[5:] == [
    'experiments.nth_farthest.train',
    '--initialization_timeout=3600',
    '--workdir=gs://mine/runs/nth_farthest-quick',
    '--cluster=none',
  ]


def test_hosts_of_a_slice_find_each_other(machine):
  task = render(*TPU, '--initialization_timeout=60')
  completed = machine(task, 'run', **variables(1, '10.0.0.7', '10.0.0'))
  assert completed.stdout.splitlines()[5:] == [
    'experiments.nth_farthest.train',
    '--initialization_timeout=3600',
    '--initialization_timeout=60',  # The last one counts.
    '--workdir=gs://mine/runs/nth_farthest-quick',
  ]


@pytest.mark.parametrize(
  ('bucket', 'workdir', 'expected'),
  [
    ('gs://mine', 'runs/x', 'gs://mine/runs/x'),
    ('s3://mine/', 'x', 's3://mine/x'),
    ('gs://mine', 'gs://other/x', 'gs://other/x'),
  ],
)
def test_workdir_is_in_a_bucket(bucket, workdir, expected):
  task = render(*TPU, f'--bucket={bucket}', f'--workdir={workdir}')
  (flag,) = [word for word in task.split() if word.startswith('--workdir=')]
  assert flag == f'--workdir={expected}'


def test_default_workdir_is_the_trainers():
  for experiment in job.experiments():
    page = job.ROOT / 'experiments' / experiment / 'sweep.py'
    assert 'quick' in runpy.run_path(str(page))['PRESETS']
    task = render(*TPU, experiment=experiment)
    assert f'--workdir=gs://mine/runs/{experiment}-quick ' in task


def test_variables_are_set_on_every_machine():
  value = '--xla_gpu_deterministic_ops=true: "é'
  task = render(*GPUS, f'--env=XLA_FLAGS={value}', '--env=B=')
  assert yaml.safe_load(task)['envs'] == {'XLA_FLAGS': value, 'B': ''}


def test_missing_bucket_prevents_training(machine):
  completed = machine(
    render(*TPU), 'run', bucket='nowhere', **variables(0, '10.0.0.7')
  )
  assert (completed.returncode, completed.stdout) == (77, '')
  assert 'nowhere' in completed.stderr


def test_setup_uses_the_python_of_uv(machine):
  assert machine(render(*TPU), 'setup').stdout == 'setup with /uv/python3.12\n'
  failed = machine(render(*TPU), 'setup', INSTALL_EXIT='2')
  assert (failed.returncode, failed.stdout) == (2, '')


def test_sky_gets_a_task_for_each_run(tmp_path, monkeypatch):
  write_program(
    tmp_path / 'sky',
    f'cat "$3" >> {tmp_path}/tasks',
    f'shift 3; echo "$@" >> {tmp_path}/flags',
    'exit 3',
  )
  monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
  arguments = ['nth_farthest', '--sweep=quick_seeds', '--bucket=gs://mine']
  code = skypilot.main([*arguments, *GPUS, '--sky=--priority=9', '--sky=-n=x'])
  assert code == 3
  flags = (tmp_path / 'flags').read_text().splitlines()
  assert flags == ['--yes --detach-run --priority=9 -n=x'] * 5
  text = (tmp_path / 'tasks').read_text()
  for seed in range(5):
    assert f'name: nth-farthest-quick-seeds-seed-{seed}\n' in text
    workdir = f'gs://mine/runs/nth_farthest-quick_seeds/seed_{seed}'
    assert f'--workdir={workdir} ' in text


def test_missing_sky_exits(monkeypatch, capsys):
  monkeypatch.setenv('PATH', '')
  with pytest.raises(SystemExit, match='77'):
    skypilot.main(['nth_farthest', '--bucket=gs://mine', *TPU])
  assert "pip install 'skypilot[gcp]'" in capsys.readouterr().err


@pytest.mark.parametrize(
  'arguments, message',
  [
    ((), 'either --tpu or --gpus'),
    ((*TPU, '--gpus=A100'), 'either --tpu or --gpus'),
    ((*TPU, '--nodes=2'), 'remove --nodes'),
    ((*TPU, '--workdir=/elsewhere/x'), '--workdir=/elsewhere/x would be lost'),
    ((*TPU, '--workdir=../x'), '--workdir=../x would be lost'),
    ((*TPU, '--workdir=/bucket/x'), '--workdir=/bucket/x would be lost'),
    ((*TPU, '--bucket=mine'), '--bucket: expected gs://BUCKET'),
    ((*TPU, '--env=A'), "--env: expected NAME=VALUE, got 'A'"),
    (('--tpu=v9-1',), 'invalid choice'),
    # TPU VMs of this generation do not exist.
    (('--tpu=v7x-8',), 'invalid choice'),
  ],
)
def test_invalid_arguments_exit(capsys, arguments, message):
  with pytest.raises(SystemExit, match='77'):
    render(*arguments)
  assert message in capsys.readouterr().err


@pytest.fixture(scope='module')
def sky_python(tmp_path_factory):
  """The Python of an environment that has SkyPilot and no credentials."""
  folder = tmp_path_factory.mktemp('skypilot')
  subprocess.run([sys.executable, '-m', 'venv', folder], check=True)
  python = str(folder / 'bin/python')
  subprocess.run(
    [python, '-m', 'pip', 'install', '--quiet', SKYPILOT], check=True
  )
  return python


@pytest.mark.slow  # Installs SkyPilot, in a minute or two.
@pytest.mark.parametrize(
  'arguments, expected',
  [
    (
      ('--gpus=A100:8', '--nodes=2', '--env=A=b'),
      {
        'nodes': 2,
        'accelerators': {'A100': 8},
        'spot': False,
        'variables': {'A': 'b'},
      },
    ),
    (
      ('--tpu=v5e-16', '--spot', '--infra=gcp/us-west4/us-west4-a'),
      {
        'nodes': 1,
        'accelerators': {'tpu-v5litepod-16': 1},
        'arguments': {'runtime_version': 'v2-alpha-tpuv5-lite'},
        'spot': True,
      },
    ),
  ],
)
def test_skypilot_accepts_the_tasks(sky_python, tmp_path, arguments, expected):
  task = render('--preset=paper', *arguments)
  completed = subprocess.run(
    [sky_python, '-c', READ_TASK],
    input=task,
    env={'HOME': str(tmp_path), 'PATH': os.environ['PATH']},
    capture_output=True,
    text=True,
    check=False,
  )
  assert completed.returncode == 0, completed.stderr
  read = json.loads(completed.stdout.splitlines()[-1])
  assert read == read | expected
  assert read['recovery']['recover_on_exit_codes'] == [job.PREEMPTED]
  assert read['recovery']['max_restarts_on_errors'] == 3


@pytest.mark.skipif(
  not shutil.which('shellcheck'), reason='shellcheck is not installed'
)
@pytest.mark.parametrize('arguments', [GPUS, TPU])
@pytest.mark.parametrize('script', ['setup', 'run'])
def test_shellcheck_accepts_the_scripts(arguments, script):
  checked = subprocess.run(
      ['shellcheck', '--shell=bash', '-'],
      input=yaml.safe_load(render(*arguments))[script],
      capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert checked.returncode == 0, checked.stdout
