"""Tests `launch.tpu_vm` in the fake cloud of tpu_cloud.py."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time

import pytest

from launch import job
from launch import resources
from launch import tpu_commands
from launch import tpu_slice
from launch import tpu_vm
from tests.launch import tpu_cloud
from tests.launch.programs import write_program

ONE_HOST = ('--tpu=v5e-8', '--zone=us-west4-a')
TWO_HOSTS = ('--tpu=v5p-16', '--zone=us-east5-a', '--bucket=mine')


@pytest.fixture
def cloud(tmp_path, monkeypatch):
  return tpu_cloud.make(tmp_path, monkeypatch)


def dry_run(capsys, *flags):
  """Returns the commands of a dry run, without its comments."""
  capsys.readouterr()
  assert tpu_vm.main(['nth_farthest', '--dry_run', *flags]) == 0
  words = shlex.split(capsys.readouterr().out, comments=True)
  starts = [index for index, word in enumerate(words) if word == 'gcloud']
  return [
    words[start:end]
    for start, end in zip(starts, [*starts[1:], None], strict=True)
  ]


def make_gcloud(*flags):
  """Returns the maker of the commands, and the run."""
  options, runs = job.parse(tpu_vm._parser(), ['nth_farthest', *flags])
  tpu_vm._check(options, runs)
  return tpu_commands.Gcloud(options), runs[0]


def describes(calls):
  """Returns the describe commands; their number depends on the timing."""
  return {tuple(call) for call in calls if 'describe' in call}


@pytest.mark.parametrize(
  ('flags', 'codes'),
  [
    ((*ONE_HOST, '--preset=quick', '--project=p'), [['slow']]),
    ((*TWO_HOSTS, '--spot', '--gcloud=--labels=a=b'), [['slow'], ['slow']]),
    ((*TWO_HOSTS, '--sweep=quick_seeds'), [['slow'], []]),
  ],
)
def test_dry_run_prints_the_commands_of_a_run(cloud, capsys, flags, codes):
  expected = dry_run(capsys, *flags)
  assert not (cloud.folder / 'calls').exists()
  assert cloud.launch(*flags, codes=codes) == 0
  assert tpu_cloud.actions(cloud.calls()) == tpu_cloud.actions(expected)
  assert describes(cloud.calls()) == describes(expected)


def test_results_of_one_host_are_copied_back(cloud, capfd):
  assert cloud.launch(*ONE_HOST, '--preset=quick', '--config.depth=3') == 0
  assert cloud.verbs() == [
    'create nth-farthest-quick-v5e-8',
    'scp runs/tpu_vm/nth-farthest-quick-v5e-8.tar.gz',
    'ssh nth-farthest-quick-v5e-8',
    'ssh nth-farthest-quick-v5e-8',
    'scp nth-farthest-quick-v5e-8:rmc_jax_work/runs',
    'delete nth-farthest-quick-v5e-8',
  ]
  assert cloud.starts() == [
    '-P -m experiments.nth_farthest.train --preset=quick --config.depth=3'
  ]
  assert pathlib.Path('runs/x/result').read_text() == '1\n'
  assert '[0] trainer 0, start 1\n' in capfd.readouterr().out
  assert not cloud.alive()
  create = cloud.calls()[1]
  assert create[3:] == [
      'queued-resources', 'create', 'nth-farthest-quick-v5e-8',
      '--zone=us-west4-a', '--node-id=nth-farthest-quick-v5e-8',
      '--accelerator-type=v5litepod-8',
      '--runtime-version=v2-alpha-tpuv5-lite', '--quiet',
  ]  # fmt: skip


def test_workers_get_the_bucket_and_the_unignored_files(cloud):
  assert cloud.launch(*TWO_HOSTS, '--keep', codes=[[], []]) == 0
  for worker in (0, 1):
    (mount,) = (cloud.folder / f'mounts.{worker}').read_text().splitlines()
    home = cloud.folder / f'homes/{worker}'
    assert mount.endswith(f' mine {home}/rmc_jax_work')
    assert '--metadata-cache-ttl-secs=0' in mount
    root = (cloud.folder / f'root.{worker}').read_text()
    assert 'install -y python3.12-venv' in root
    assert 'install -y gcsfuse' in root
    assert (home / 'rmc_jax/trainer').exists()
    assert not (home / 'rmc_jax/secret').exists()
    assert len(cloud.starts(worker)) == 1


def test_kept_slice_is_reported_and_used_again(cloud, capfd):
  assert cloud.launch(*ONE_HOST, '--keep', '--name=mine') == 0
  assert cloud.alive()
  assert (
    'gcloud compute tpus queued-resources delete mine --zone=us-west4-a '
    '--force --quiet'
  ) in capfd.readouterr().err
  # The same command finds it, and sends the current code.
  (job.ROOT / 'new').touch()
  assert cloud.launch(*ONE_HOST, '--keep', '--name=mine') == 0
  assert len(cloud.starts()) == 2
  assert (cloud.folder / 'homes/0/rmc_jax/new').exists()
  assert cloud.verbs().count('create mine') == 1


@pytest.mark.parametrize(
  'taken',
  [
    {'states': ['ACTIVE', 'ACTIVE', 'SUSPENDED', 'ACTIVE']},
    {'states': ['ACTIVE', 'ACTIVE', 'FAILED', 'ACTIVE']},
    {'nodes': ['READY', 'PREEMPTED', 'READY']},
  ],
)
def test_preempted_machines_are_requested_again(cloud, capfd, taken):
  code = cloud.launch(
      *TWO_HOSTS, '--spot', '--name=mine', '--max_restarts=0',
      codes=[['waits', 0], ['waits', 0]], **taken,
  )  # fmt: skip
  assert code == 0, capfd.readouterr().err
  once = ['create mine', 'scp runs/tpu_vm/mine.tar.gz', *['ssh mine'] * 2]
  assert cloud.verbs() == [*once, 'delete mine', *once, 'delete mine']
  assert 'requesting new machines' in capfd.readouterr().err


def test_state_of_the_queue_is_logged_once(cloud, capfd):
  states = ['WAITING_FOR_RESOURCES'] * 2 + ['PROVISIONING', 'ACTIVE']
  assert cloud.launch(*ONE_HOST, '--name=mine', states=states) == 0
  log = capfd.readouterr().err
  assert log.count('mine is WAITING_FOR_RESOURCES') == 1
  assert log.count('mine is PROVISIONING') == 1


def test_preemptions_do_not_count_as_restarts(cloud):
  assert cloud.launch(*ONE_HOST, '--max_restarts=0', codes=[[75, 75, 0]]) == 0
  assert len(cloud.starts()) == 3


def test_number_of_restarts_is_limited(cloud, capfd):
  codes = [[1, 75, 3, 5, 0]]
  assert cloud.launch(*ONE_HOST, '--max_restarts=2', codes=codes) == 5
  log = capfd.readouterr().err
  assert 'ended with 1 (crash); restart 1 of 2' in log
  assert 'after 2 restarts' in log
  assert not cloud.alive()


@pytest.mark.parametrize('code', [76, 77])
def test_final_exit_codes_are_not_restarted(cloud, code):
  assert cloud.launch(*TWO_HOSTS, codes=[[code], [134]]) == code
  assert len(cloud.starts()) == 1
  assert not cloud.alive()


def test_other_workers_are_killed_after_the_grace_period(cloud, capfd):
  code = cloud.launch(*TWO_HOSTS, '--grace=2', codes=[['waits', 0], [1, 0]])
  assert code == 0
  log = capfd.readouterr().err
  assert 'killing the other processes after 2 s' in log
  assert 'ended with 1 (crash); restart 1 of 3' in log


def test_broken_connection_is_renewed_without_a_restart(cloud, capfd):
  code = cloud.launch(*TWO_HOSTS, codes=[['slow'], ['slow']], drops=[1, 1, 0])
  assert code == 0
  assert len(cloud.starts(0)) == len(cloud.starts(1)) == 1
  assert 'the connection broke' in capfd.readouterr().err


def test_unresponsive_slice_is_replaced(cloud, capfd, monkeypatch):
  monkeypatch.setattr(tpu_slice, '_MAX_FAILURES', 2)
  code = cloud.launch(*ONE_HOST, codes=[[0]], drops=['at once'] * 2 + [0])
  assert code == 0
  log = capfd.readouterr().err
  assert 'nth-farthest-v5e-8 does not respond; restart 1 of 3' in log
  assert [v.split()[0] for v in cloud.verbs()].count('create') == 2


def test_failed_mount_of_the_bucket_is_a_crash(cloud, capfd):
  programs = os.environ['PATH'].partition(':')[0]
  gcsfuse = pathlib.Path(programs) / 'gcsfuse'
  write_program(gcsfuse, 'echo "permission denied" >&2', 'exit 1')
  code = cloud.launch(*TWO_HOSTS, '--max_restarts=1', codes=[[], []])
  assert code == 1
  assert 'permission denied' in capfd.readouterr().out
  assert cloud.starts() == []
  assert not cloud.alive()


def test_runs_of_a_sweep_share_one_slice(cloud, capfd):
  assert cloud.launch(
      *ONE_HOST, '--sweep=quick_seeds', codes=[[0, 76, 0, 0, 0]]
  ) == 76  # fmt: skip
  assert [s.rpartition('=')[2] for s in cloud.starts()] == [
    f'runs/nth_farthest-quick_seeds/seed_{seed}' for seed in range(5)
  ]
  assert 'seed_1: 76 (diverged)' in capfd.readouterr().err
  assert cloud.verbs().count('create nth-farthest-quick-seeds-v5e-8') == 1


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_copies_the_results_and_deletes(cloud, capfd, number):
  signal_when(lambda: cloud.starts(), number)
  assert cloud.launch(*ONE_HOST, codes=[['waits']]) == 75
  log = capfd.readouterr()
  assert '[0] saved' in log.out
  assert pathlib.Path('runs/x/result').exists()
  assert not cloud.alive()


def test_trainer_saves_when_its_machine_shuts_down(cloud):
  """All processes get SIGTERM; the exit code is recorded nevertheless."""
  trainer = tpu_cloud.TRAINER.replace('exit 75', 'exit 76')
  (job.ROOT / 'trainer').write_text(trainer)

  def shut_down():
    while not cloud.starts():
      time.sleep(0.05)
    time.sleep(0.3)
    for name in ('wrapper', 'pid'):
      path = cloud.folder / 'homes/0/rmc_jax_job' / name
      os.kill(int(path.read_text()), signal.SIGTERM)

  threading.Thread(target=shut_down, daemon=True).start()
  assert cloud.launch(*ONE_HOST, codes=[['waits']]) == 76


def test_second_signal_deletes_the_slice_immediately(cloud):
  trainer = tpu_cloud.TRAINER.replace("echo saved; exit 75' TERM", "' TERM")
  (job.ROOT / 'trainer').write_text(trainer)
  signal_when(lambda: cloud.starts(), signal.SIGINT, times=2)
  assert cloud.launch(*ONE_HOST, codes=[['waits']]) == 75
  assert not cloud.alive()
  assert not [verb for verb in cloud.verbs() if verb.endswith('runs')]


def test_signal_in_the_queue_deletes_the_request(cloud):
  signal_when(lambda: cloud.alive(), signal.SIGINT)
  states = ['WAITING_FOR_RESOURCES']
  assert cloud.launch(*ONE_HOST, states=states) == 75
  assert not cloud.alive()
  assert cloud.starts() == []


def signal_when(condition, number, times=1):
  def watch():
    for _ in range(times):
      while not condition():
        time.sleep(0.05)
      time.sleep(0.3)
      os.kill(os.getpid(), number)

  threading.Thread(target=watch, daemon=True).start()


def test_running_trainers_are_found_by_the_same_command(cloud, capfd):
  """After kill -9 of the launcher, for example."""
  gcloud, run = make_gcloud(*ONE_HOST, '--name=mine')
  cloud.launch(*ONE_HOST, '--name=mine', '--keep', codes=[[0, 'slow']])
  train = gcloud.train(run, attempt=4)
  left = subprocess.Popen(train, stdout=subprocess.PIPE)
  while len(cloud.starts()) < 2:
    time.sleep(0.02)
  left.kill()
  left.wait()
  left.stdout.close()
  assert cloud.launch(*ONE_HOST, '--name=mine', codes=[[0, 'slow']]) == 0
  assert len(cloud.starts()) == 2
  assert 'a run is active here' in capfd.readouterr().out


def test_other_run_on_the_slice_is_not_disturbed(cloud, capfd):
  gcloud, run = make_gcloud(*ONE_HOST, '--name=mine')
  cloud.launch(*ONE_HOST, '--name=mine', '--keep', codes=[[0, 'slow']])
  train = gcloud.train(run, attempt=1)
  # Another command, so it starts, and is still active below.
  train = [word.replace('nth_farthest.train', 'other.train') for word in train]
  left = subprocess.Popen(train, stdout=subprocess.DEVNULL)
  while len(cloud.starts()) < 2:
    time.sleep(0.02)
  code = cloud.launch(*ONE_HOST, '--name=mine', '--keep', codes=[[0, 'slow']])
  assert code == 77
  assert 'another run is active here: -P -m exp' in capfd.readouterr().out
  assert left.wait() == 0


@pytest.mark.parametrize(('was_active', 'code'), [(False, 77), (True, 1)])
def test_refused_request_leaves_no_slice(cloud, capfd, was_active, code):
  scenario = {'create': [1]}
  if was_active:
    scenario = {'create': [0, 1], 'states': ['ACTIVE', 'SUSPENDED']}
  assert cloud.launch(
      *ONE_HOST, '--max_restarts=1', codes=[['waits']], **scenario
  ) == code  # fmt: skip
  assert 'refused' in capfd.readouterr().err
  assert not cloud.alive()


def test_failed_request_is_deleted(cloud, capfd):
  code = cloud.launch(*ONE_HOST, '--max_restarts=1', states=['FAILED'])
  assert code == 1
  assert not cloud.alive()
  assert [v.split()[0] for v in cloud.verbs()] == ['create', 'delete'] * 2


def test_failed_setup_of_a_worker_ends_the_launcher(cloud):
  (cloud.folder / 'setup').write_text('77')
  assert cloud.launch(*ONE_HOST) == 77
  assert cloud.starts() == []
  assert not cloud.alive()


def test_slice_of_another_type_is_refused_and_unchanged(cloud, capfd):
  (cloud.folder / 'exists').touch()
  assert cloud.launch(*ONE_HOST, '--name=mine', type='v6e-8') == 77
  assert 'is v6e-8, not v5litepod-8' in capfd.readouterr().err
  assert cloud.verbs() == []


def test_slice_is_kept_if_its_results_cannot_be_copied(cloud, capfd):
  pathlib.Path('runs').mkdir()
  pathlib.Path('runs/x').touch()  # In the way.
  assert cloud.launch(*ONE_HOST) == 1
  assert cloud.alive()
  assert 'could not be copied' in capfd.readouterr().err


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['--tpu=v5e-16', '--zone=z'], '--tpu=v5e-16 has 4 hosts.*--bucket=NAME'),
    (['--tpu=v9-1', '--zone=z'], "--tpu.*'v9-1'.*v4-8"),
    (['--tpu=v5e-8'], '--zone'),
    ([*ONE_HOST, '--workdir=/tmp/x'], '--workdir=/tmp/x.*below runs/'),
    ([*ONE_HOST, '--workdir=runs/../x'], '--workdir=runs/../x.*below runs/'),
    ([*ONE_HOST, '--name=Mine'], '--name=Mine.*lowercase'),
  ],
)
def test_invalid_option_is_named_with_its_value(cloud, capfd, flags, message):
  assert cloud.launch(*flags) == 77
  assert re.search(message, capfd.readouterr().err)
  assert not (cloud.folder / 'calls').exists()


def test_bucket_without_hierarchical_namespace_is_refused(cloud, capfd):
  assert cloud.launch(*TWO_HOSTS, bucket='') == 77
  assert '--enable-hierarchical-namespace' in capfd.readouterr().err
  assert len(cloud.calls()) == 1


def test_missing_gcloud_is_reported(cloud, capfd, monkeypatch):
  monkeypatch.setattr(tpu_vm.shutil, 'which', lambda name: None)
  assert cloud.launch(*ONE_HOST) == 77
  assert 'gcloud' in capfd.readouterr().err


@pytest.mark.skipif(
  not shutil.which('shellcheck'), reason='shellcheck is not installed'
)
@pytest.mark.parametrize('flags', [ONE_HOST, TWO_HOSTS])
def test_shellcheck_accepts_the_scripts(capsys, flags):
  gcloud, run = make_gcloud(*flags)
  for command in (gcloud.install(), gcloud.train(run, 1), gcloud.signal('INT')):
    (script,) = [w[10:] for w in command if w.startswith('--command=')]
    checked = subprocess.run(
        ['shellcheck', '--shell=sh', '-'], input=script,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
@pytest.mark.skipif(
  not shutil.which('gcloud'), reason='gcloud is not installed'
)
def test_gcloud_has_every_flag(capsys, tmp_path, monkeypatch):
  monkeypatch.setenv('CLOUDSDK_CONFIG', str(tmp_path))
  commands = dry_run(capsys, *TWO_HOSTS, '--spot') + dry_run(capsys, *ONE_HOST)
  verbs = {}
  for command in commands:
    words = command[:4] if command[1] == 'storage' else command[:5]
    flags = [w.partition('=')[0] for w in command if w.startswith('--')]
    verbs.setdefault(tuple(words), set()).update(flags)
  assert len(verbs) == 7
  for words, flags in verbs.items():
    page = subprocess.run(
      [*words, '--help'], capture_output=True, text=True, check=True
    ).stdout
    bare = subprocess.run(
      ['col', '-b'], input=page, capture_output=True, text=True, check=True
    ).stdout
    for flag in flags - {'--quiet'}:
      assert flag in bare, (words, flag)


def test_every_slice_is_requested_by_its_type(capsys):
  for name, tpu in resources.TPUS.items():
    flags = [f'--tpu={name}', '--zone=z', '--bucket=b']
    create = dry_run(capsys, *flags)[2]
    assert f'--accelerator-type={tpu.accelerator_type}' in create
    assert f'--runtime-version={tpu.runtime}' in create
