"""Tests `launch.local`: the commands of a dry run, then real training."""

import itertools
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
from launch import processes
from tests.launch.programs import write_program

RUN = '--config.run'
TINY = (
  '--preset=quick',
  '--config.core.mem_slots=2',
  '--config.hidden_sizes=(5,)',
  '--config.batch_size=4',
  '--config.eval_examples=12',
  f'{RUN}.updates_per_call=10',
  f'{RUN}.log_every=100',
  f'{RUN}.eval_every=1000',
  f'{RUN}.checkpoint_every=300',
)


@pytest.fixture
def machine(monkeypatch):
  """Sets the cores and GPUs of this machine."""

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


def test_one_process_gets_all_gpus_and_cores(capsys, machine):
  machine(gpus='4,6')
  (command,) = dry_run(capsys)
  assert 'CUDA_VISIBLE_DEVICES=4,6' in command
  assert '0,1,2,3' in command
  assert not [flag for flag in command if 'process' in flag]


def test_parallel_runs_share_gpus_and_cores(capsys, machine, monkeypatch):
  machine(gpus='0,1,2,3')
  # The system may return a port twice.
  monkeypatch.setattr(local, '_free_port', itertools.count(4000).__next__)
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
  ('codes', 'expected'),
  [
    ([0, 0, 0], 5),  # The exit code of the analysis.
    ([0, 76, 0], 76),
  ],
)
def test_sweep_ends_with_its_analysis_if_all_runs_are_done(
  machine, monkeypatch, capsys, codes, expected
):
  machine(cores='01')
  commands = []

  class FakeSupervisor:
    def __init__(self, runs, **_):
      self.names = list(runs)

    def run(self):
      return dict(zip(self.names, codes, strict=True))

  def run(command, check):
    assert not check
    commands.append([str(word) for word in command])
    is_analysis = any('analysis' in word for word in commands[-1])
    return subprocess.CompletedProcess(command, 5 if is_analysis else 0)

  monkeypatch.setattr(processes, 'Supervisor', FakeSupervisor)
  monkeypatch.setattr(local.subprocess, 'run', run)
  arguments = ['learn_to_execute', '--sweep=quick_seeds', '--workdir=here']
  assert local.main(arguments) == expected
  setup, *rest = commands
  assert setup[0].endswith('setup.sh')
  if expected == 5:
    (analysis,) = rest
    assert analysis[-4:] == [
        'experiments.learn_to_execute.analysis',
        'here/seed_0', 'here/seed_1', 'here/seed_2',
    ]  # fmt: skip
  else:
    assert rest == []
  assert 'seed_1' in capsys.readouterr().err


def test_more_processes_than_cores_share_cores(capsys, machine):
  machine(cores='01')
  commands = dry_run(capsys, '--processes=3')
  lists = [c[c.index('--cpu-list') + 1] for c in commands]
  assert lists == ['0', '1', '0']


def test_indivisible_gpus_are_refused(capsys, machine):
  machine(gpus='0,1,2')
  with pytest.raises(SystemExit) as exit_info:
    local.main(['nth_farthest', '--processes=2'])
  assert exit_info.value.code == 77
  assert re.search('3 GPUs .* 2 processes', capsys.readouterr().err)


# See test_processes.py.
@pytest.mark.filterwarnings('ignore:os.fork:RuntimeWarning')
@pytest.mark.parametrize(
  ('flags', 'workdir'),
  [
    ([], 'runs/toy-quick'),
    (['--preset=small'], 'runs/toy-small'),
    (['--workdir=mine'], 'mine'),
  ],
)
def test_newer_checkpoint_resets_the_number_of_restarts(
  machine, monkeypatch, tmp_path, capfd, flags, workdir
):
  machine()
  write_program(tmp_path / 'launch/setup.sh', 'exit 0')
  experiment = tmp_path / 'experiments/toy'
  experiment.mkdir(parents=True)
  (experiment / 'train.py').touch()
  (experiment / 'sweep.py').write_text('PRESETS = {"small": {}}')
  # Crashes twice at step 200, then at step 1000.
  write_program(
    tmp_path / '.venv/bin/python',
    'echo >>attempts',
    'step=$(($(wc -l <attempts) > 2 ? 1000 : 200))',
    f'cd {workdir}/checkpoints || exit 9',
    'mkdir -p $step quarantined/9000 8000',
    'touch {$step,quarantined/9000}/manifest.json',
    'exit 3',
  )
  (tmp_path / workdir / 'checkpoints').mkdir(parents=True)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(job, 'ROOT', tmp_path)
  monkeypatch.setattr(processes, '_LONGEST_PAUSE', 0.01)
  assert local.main(['toy', '--max_restarts=2', *flags]) == 3
  counts = re.findall(r'restart (\d) of 2', capfd.readouterr().err)
  assert counts == ['1', '2', '1', '2']


class Launched:
  """`python -m launch.local` with a tiny run and its output in a file."""

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
        f'{RUN}.num_steps={num_steps}',
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
    """Waits for a checkpoint of this or a later step."""
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
    pytest.fail(f'the condition never held:\n{self.log.read_text()}')

  def rank(self, number):
    """Returns the pid of the newest trainer of this rank."""
    flags = {f'--process_id={number}', f'--workdir={self.workdir}'}
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
      try:
        words = path.read_bytes().decode().split('\0')
      except OSError:
        continue
      if flags <= set(words):
        found.append(int(path.parent.name))
    return max(found)

  def finish(self, seconds=200):
    """Returns the exit code and the output."""
    try:
      return self.process.wait(seconds), self.log.read_text()
    except subprocess.TimeoutExpired:
      self.process.kill()
      pytest.fail(f'the launcher hangs:\n{self.log.read_text()}')
    finally:
      self._file.close()


def digests(workdir, step=1500):
  """Returns the digest of every array of a checkpoint."""
  manifest = workdir / f'checkpoints/{step}/manifest.json'
  leaves = json.loads(manifest.read_text().splitlines()[0])['leaves']
  return {path: leaf['digest'] for path, leaf in leaves.items()}


@pytest.fixture(scope='module')
def uninterrupted(checkout, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('runs') / 'uninterrupted'
  code, output = Launched(checkout, workdir, '--processes=2').finish()
  assert code == 0, output
  return digests(workdir)


@pytest.mark.slow
@pytest.mark.multiprocess
@pytest.mark.parametrize(
  ('rank', 'number', 'message'),
  [
    # tests/faults signals the other process.
    (1, signal.SIGTERM, 'preempted; restarting'),
    (0, signal.SIGKILL, 'restart 1 of 3'),
  ],
)
def test_run_survives_a_signal_to_one_of_its_processes(
  checkout, tmp_path, uninterrupted, rank, number, message
):
  launched = Launched(checkout, tmp_path / 'run', '--processes=2')
  launched.wait_for_step(300)
  os.kill(launched.rank(rank), number)
  code, output = launched.finish()
  assert code == 0, output
  assert message in output
  assert digests(tmp_path / 'run') == uninterrupted


@pytest.mark.slow
@pytest.mark.multiprocess
def test_stopped_launcher_saves_and_the_same_command_resumes(
  checkout, tmp_path, uninterrupted
):
  launched = Launched(checkout, tmp_path / 'run', '--processes=2')
  launched.wait_for_step(300)
  launched.process.send_signal(signal.SIGINT)
  code, output = launched.finish()
  assert code == 75, output
  code, output = Launched(checkout, tmp_path / 'run', '--processes=2').finish()
  assert code == 0, output
  assert re.search(r'resuming at step [1-9]', output), output
  assert digests(tmp_path / 'run') == uninterrupted


@pytest.mark.slow
@pytest.mark.multiprocess
def test_configuration_error_is_not_restarted(checkout, tmp_path):
  launched = Launched(
    checkout, tmp_path / 'run', '--processes=2', '--config.batch_size=3'
  )
  code, output = launched.finish()
  assert code == 77, output
  assert 'batch' in output
  assert 'restart' not in output
