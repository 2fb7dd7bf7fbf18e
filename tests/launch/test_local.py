"""Tests launch/local.py: its commands as printed, then real training."""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from launch import job
from launch import local

TINY = (
  '--preset=quick',
  '--config.core.mem_slots=2',
  '--config.hidden_sizes=(5,)',
  '--config.batch_size=4',
  '--config.eval_examples=12',
  '--config.updates_per_call=10',
  '--config.log_every=100',
  '--config.eval_every=1000',
  '--config.checkpoint_every=300',
)


@pytest.fixture
def machine(monkeypatch):
  """Four cores and, if asked for, GPUs."""

  def make(cores='0123', gpus=None):
    monkeypatch.setattr(local, '_cores', lambda: list(cores))
    monkeypatch.setenv('PYTHONPATH', '')
    for name in ('GLIBC_TUNABLES', 'JAX_PLATFORMS'):
      monkeypatch.delenv(name, raising=False)
    if gpus is None:
      monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
      monkeypatch.setattr(
        local.shutil,
        'which',
        lambda name: None if name == 'nvidia-smi' else f'/bin/{name}',
      )
    else:
      monkeypatch.setenv('CUDA_VISIBLE_DEVICES', gpus)

  return make


def dry_run(capsys, *arguments):
  assert local.main(['nth_farthest', '--dry_run', *arguments]) == 0
  return [shlex.split(line) for line in capsys.readouterr().out.splitlines()]


def test_processes_share_cores_and_know_their_place(capsys, machine):
  machine()
  commands = dry_run(capsys, '--preset=quick', '--processes=2', '--port=4321')
  for rank, (command, cores) in enumerate(
    zip(commands, ('0,1', '2,3'), strict=True)
  ):
    assert command == [
        'env', f'PYTHONPATH={job.ROOT}',
        'GLIBC_TUNABLES=glibc.malloc.hugetlb=1', 'taskset', '--cpu-list', cores,
        str(job.ROOT / '.venv/bin/python'), '-P', '-m',
        'experiments.nth_farthest.train', '--preset=quick',
        '--coordinator_address=localhost:4321', '--num_processes=2',
        f'--process_id={rank}',
    ]  # fmt: skip


def test_one_process_gets_everything_and_is_in_no_job(capsys, machine):
  machine(gpus='4,6')
  (command,) = dry_run(capsys)
  assert 'CUDA_VISIBLE_DEVICES=4,6' in command
  assert '0,1,2,3' in command
  assert not [flag for flag in command if 'process' in flag]


def test_runs_of_a_sweep_side_by_side_share_gpus_and_cores(capsys, machine):
  machine(gpus='0,1,2,3')
  *commands, analysis = dry_run(
    capsys, '--sweep=quick_seeds', '--parallel=2', '--processes=2'
  )
  assert len(commands) == 10
  assert analysis[-6:] == [
    'experiments.nth_farthest.analysis',
    *(f'runs/nth_farthest-quick_seeds/seed_{seed}' for seed in range(5)),
  ]
  gpus = [re.search(r'DEVICES=(\S+)', ' '.join(c))[1] for c in commands]
  assert gpus == ['0', '1', '2', '3'] * 2 + ['0', '1']
  ports = {
    flag for c in commands for flag in c if flag.startswith('--coordinator')
  }
  assert len(ports) == 5


@pytest.mark.parametrize(
  'codes, analysed, expected',
  [
    ([0, 0, 0], True, 5),  # the analysis's own code
    ([0, 76, 0], False, 76),
  ],
)
def test_a_sweep_ends_with_its_analysis_if_all_runs_are_done(
  machine, monkeypatch, capsys, codes, analysed, expected
):
  machine(cores='01')
  commands = []

  class Ended:
    def __init__(self, tasks, **_):
      self.names = [task.name for task in tasks]

    def run(self):
      return dict(zip(self.names, codes, strict=True))

  def run(command, check):
    assert not check
    commands.append([str(word) for word in command])
    is_analysis = any('analysis' in word for word in commands[-1])
    return subprocess.CompletedProcess(command, 5 if is_analysis else 0)

  monkeypatch.setattr(local.processes, 'Supervisor', Ended)
  monkeypatch.setattr(local.subprocess, 'run', run)
  arguments = ['learn_to_execute', '--sweep=quick_seeds', '--workdir=here']
  assert local.main(arguments) == expected
  set_up, *rest = commands
  assert set_up[0].endswith('setup.sh')
  assert len(rest) == analysed
  if analysed:
    assert rest[0][-4:] == [
        'experiments.learn_to_execute.analysis',
        'here/seed_0', 'here/seed_1', 'here/seed_2',
    ]  # fmt: skip
  assert 'seed_1' in capsys.readouterr().err


def test_more_processes_than_cores_share_them(capsys, machine):
  machine(cores='01')
  commands = dry_run(capsys, '--processes=3')
  lists = [c[c.index('--cpu-list') + 1] for c in commands]
  assert lists == ['0', '1', '0']


def test_gpus_that_do_not_divide_are_refused(capsys, machine):
  machine(gpus='0,1,2')
  with pytest.raises(SystemExit) as ended:
    local.main(['nth_farthest', '--processes=2'])
  assert ended.value.code == 77
  assert '3 GPUs do not divide over 2' in capsys.readouterr().err


class Launched:
  """`python -m launch.local` on the tiny run, with its output in a file."""

  def __init__(self, checkout, workdir, *flags, num_steps=1500):
    self.log = workdir.with_suffix('.log')
    self._file = self.log.open('w')
    self.process = subprocess.Popen(
      [
        sys.executable,
        '-m',
        'launch.local',
        'nth_farthest',
        *TINY,
        f'--config.num_steps={num_steps}',
        f'--workdir={workdir}',
        *flags,
      ],  # fmt: skip
      cwd=checkout,
      env=os.environ | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''},
      stdout=self._file,
      stderr=subprocess.STDOUT,
    )
    self.workdir = workdir

  def wait_for_step(self, step):
    """Until a checkpoint of that step or a later one is there."""
    self.wait(
      lambda: any(
        int(path.name) >= step
        for path in self.workdir.glob('checkpoints/[0-9]*')
        if path.name.isdigit()
      )
    )

  def wait(self, condition, seconds=120):
    for _ in range(10 * seconds):
      if condition():
        return
      if self.process.poll() is not None:
        break
      time.sleep(0.1)
    pytest.fail(f'never came to it:\n{self.log.read_text()}')

  def rank(self, number):
    """The pid of the trainer of that rank, started last."""
    wanted = f'--process_id={number}'
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
      try:
        words = path.read_bytes().decode().split('\0')
      except OSError:
        continue
      if wanted in words and f'--workdir={self.workdir}' in words:
        found.append(int(path.parent.name))
    return max(found)

  def end(self, seconds=200):
    try:
      return self.process.wait(seconds), self.log.read_text()
    except subprocess.TimeoutExpired:
      self.process.kill()
      pytest.fail(f'it hangs:\n{self.log.read_text()}')
    finally:
      self._file.close()


def digests(workdir, step=1500):
  """The digest of every array of a checkpoint, by its path."""
  manifest = workdir / f'checkpoints/{step}/manifest.json'
  leaves = json.loads(manifest.read_text().splitlines()[0])['leaves']
  return {path: leaf['digest'] for path, leaf in leaves.items()}


@pytest.fixture(scope='module')
def uninterrupted(checkout, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('runs') / 'uninterrupted'
  code, said = Launched(checkout, workdir, '--processes=2').end()
  assert code == 0, said
  return digests(workdir)


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize(
  ('rank', 'number', 'told'),
  [
    # The other way round: tests/faults.
    (1, signal.SIGTERM, 'was preempted; starting it again'),
    (0, signal.SIGKILL, 'restart 1 of 3'),
  ],
)
def test_a_job_survives_what_happens_to_one_of_its_processes(
  checkout, tmp_path, uninterrupted, rank, number, told
):
  launched = Launched(checkout, tmp_path / 'run', '--processes=2')
  launched.wait_for_step(300)
  os.kill(launched.rank(rank), number)
  code, said = launched.end()
  assert code == 0, said
  assert told in said
  assert digests(tmp_path / 'run') == uninterrupted


@pytest.mark.slow
@pytest.mark.multiprocess
def test_asked_to_stop_it_saves_and_the_same_command_goes_on(
  checkout, tmp_path, uninterrupted
):
  launched = Launched(checkout, tmp_path / 'run', '--processes=2')
  launched.wait_for_step(300)
  launched.process.send_signal(signal.SIGINT)
  code, said = launched.end()
  assert code == 75, said
  code, said = Launched(checkout, tmp_path / 'run', '--processes=2').end()
  assert code == 0, said
  assert 'going on from step' in said
  assert digests(tmp_path / 'run') == uninterrupted


@pytest.mark.slow
@pytest.mark.multiprocess
def test_a_configuration_error_is_not_tried_again(checkout, tmp_path):
  launched = Launched(
    checkout, tmp_path / 'run', '--processes=2', '--config.batch_size=3'
  )
  code, said = launched.end()
  assert code == 77, said
  assert 'does not divide' in said
  assert 'restart' not in said
