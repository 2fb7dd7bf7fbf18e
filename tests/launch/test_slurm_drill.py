"""Tests `launch.slurm` on a real Slurm: whatever ends a job, it resumes."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.launch import slurm_cluster
from tests.launch.test_local import digests

obstacle = slurm_cluster.obstacle()
pytestmark = [
  pytest.mark.slow,
  pytest.mark.multiprocess,
  pytest.mark.skipif(obstacle is not None, reason=str(obstacle)),
]

STEPS = 1200
TINY = (
  '--preset=quick',
  '--config.core.name=lstm',  # Compiles fast.
  '--config.core.hidden_size=5',
  '--config.hidden_sizes=(5,)',
  '--config.batch_size=4',
  '--config.eval_examples=12',
  '--config.run.updates_per_call=5',
  '--config.run.log_every=100',
  '--config.run.checkpoint_every=100',
  f'--config.run.num_steps={STEPS}',
)
ENDED = ('COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'NODE_FAIL')
SWEEP = """
SWEEPS['twice'] = {name: {'preset': 'quick'} for name in ('a', 'b')}
"""
# An experiment of which one process is refused, and JAX aborts the other.
REFUSED = """
import os, sys
if os.environ['SLURM_PROCID'] == '0':
  sys.exit(77)
os.abort()
"""


class Cluster:
  """A Slurm of four nodes and a checkout, from which jobs are submitted."""

  def __init__(self, folder, checkout, environment):
    self.checkout = checkout
    self.environment = environment | {
      'JAX_PLATFORMS': 'cpu',
      'XLA_FLAGS': '',
      # All jobs compile the same programs.
      'JAX_COMPILATION_CACHE_DIR': str(folder / 'cache'),
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
      'JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES': '-1',
    }

  def run(self, *command):
    completed = subprocess.run(
        command, cwd=self.checkout, env=self.environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    return completed.stdout

  def launch(self, *arguments):
    output = self.run(sys.executable, '-m', 'launch.slurm', *arguments)
    return re.search(r'Submitted batch job (\d+)', output)[1]

  def submit(self, workdir, *flags):
    flags = ('--nodes=2', *TINY, f'--workdir={workdir}', *flags)
    return Job(self, self.launch('nth_farthest', *flags), workdir)


class Job:
  """A submitted job, or a task of an array."""

  def __init__(self, cluster, number, workdir):
    self.cluster, self.number, self.workdir = cluster, number, workdir

  @property
  def log(self):
    folder = self.cluster.checkout / 'runs/slurm'
    logs = folder.glob(f'*-{self.number}.log')
    return ''.join(log.read_text() for log in logs)

  def show(self):
    text = self.cluster.run('scontrol', 'show', 'job', self.number)
    return dict(re.findall(r'(\w+)=(\S*)', text))

  def wait_for_state(self, *states):
    self.wait(lambda: self.show()['JobState'] in states)

  @contextlib.contextmanager
  def paused(self):
    """Stops the trainers after a checkpoint, until Slurm sends them SIGTERM."""
    self.wait(lambda: (self.workdir / 'checkpoints/100').exists())
    # Not srun and the shells, which have the same argument.
    trainers = slurm_cluster.processes(
      sys.executable, f'--workdir={self.workdir}'
    )
    assert trainers, self.log
    for pid in trainers:
      os.kill(pid, signal.SIGSTOP)
    yield
    self.wait(lambda: all(map(has_sigterm, trainers)))
    for pid in trainers:
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)

  def wait(self, condition, seconds=120):
    for _ in range(5 * seconds):
      if condition():
        return
      time.sleep(0.2)
    pytest.fail(f'{self.show()}\n{self.log}')

  def start_again(self):
    """Starts the requeued job; by itself Slurm waits for two minutes."""
    self.wait_for_state('PENDING')
    time.sleep(2)  # A job that starts in the same second is refused.
    self.cluster.run(
      'scontrol', 'update', f'JobId={self.number}', 'StartTime=now'
    )

  def finish(self, restarts):
    """Waits until the job completes."""
    self.wait_for_state(*ENDED)
    shown = self.show()
    assert shown['JobState'] == 'COMPLETED', self.log
    assert shown['Restarts'] == str(restarts)
    if restarts:
      assert re.search(r'resuming at step [1-9]', self.log), self.log


def has_sigterm(pid):
  """Returns whether a stopped process has a SIGTERM, or was continued."""
  try:
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
  except OSError:
    return True  # It has ended.
  pending = int(re.search(r'ShdPnd:\s*(\w+)', status)[1], 16)
  return 'State:\tT' not in status or bool(pending >> (signal.SIGTERM - 1) & 1)


@pytest.fixture(scope='module')
def shared_cluster(checkout, tmp_path_factory):
  folder = tmp_path_factory.mktemp('slurm')
  experiments = checkout / 'experiments'
  with (experiments / 'nth_farthest/sweep.py').open('a') as file:
    file.write(SWEEP)
  (experiments / 'refused').mkdir()
  (experiments / 'refused/sweep.py').touch()
  (experiments / 'refused/train.py').write_text(REFUSED)
  with slurm_cluster.running(folder, nodes=4) as environment:
    yield Cluster(folder, checkout, environment)


@pytest.fixture
def cluster(shared_cluster):
  """The cluster; the jobs of a test that fails are cancelled."""
  yield shared_cluster
  shared_cluster.run('scancel', '--user=root')
  while shared_cluster.run('squeue', '--noheader'):
    time.sleep(0.2)


@pytest.fixture(scope='module')
def uninterrupted(shared_cluster, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('runs') / 'uninterrupted'
  shared_cluster.submit(workdir).finish(restarts=0)
  return digests(workdir, STEPS)


# A preemption without GraceTime is such a requeue.
def test_requeued_job_resumes(cluster, tmp_path, uninterrupted):
  job = cluster.submit(tmp_path / 'run')
  with job.paused():
    cluster.run('scontrol', 'requeue', job.number)
  job.start_again()
  job.finish(restarts=1)
  assert digests(job.workdir, STEPS) == uninterrupted


def test_job_preempted_with_grace_resumes(cluster, tmp_path, uninterrupted):
  job = cluster.submit(tmp_path / 'run', '--partition=low')
  with job.paused():
    cluster.run(
      'sbatch', '--nodes=4', '--exclusive', '--output=/dev/null', '--wrap=true'
    )
  job.start_again()
  job.finish(restarts=1)
  assert digests(job.workdir, STEPS) == uninterrupted


def test_cancelled_job_saves_and_the_same_command_resumes(
  cluster, tmp_path, uninterrupted
):
  job = cluster.submit(tmp_path / 'run')
  with job.paused():
    cluster.run('scancel', job.number)
  job.wait_for_state('CANCELLED')
  job.wait(lambda: 'Stopped at step' in job.log)
  job = cluster.submit(tmp_path / 'run')
  job.finish(restarts=0)
  assert 'resuming at step' in job.log
  assert digests(job.workdir, STEPS) == uninterrupted


def test_job_resumes_after_its_time_limit(cluster, tmp_path, uninterrupted):
  # Slurm sends the signal up to half a minute earlier, so after 25 seconds.
  job = cluster.submit(tmp_path / 'run', '--time=1', '--grace=5')
  with job.paused():
    pass
  job.start_again()
  job.finish(restarts=1)
  assert 'preempted; requeued' in job.log
  assert digests(job.workdir, STEPS) == uninterrupted


def test_interrupted_task_of_an_array_resumes(cluster, tmp_path):
  array = cluster.launch(
    'nth_farthest', '--sweep=twice', f'--workdir={tmp_path}', *TINY[1:]
  )
  tasks = [
    Job(cluster, f'{array}_{index}', tmp_path / name)
    for index, name in enumerate('ab')
  ]
  with tasks[0].paused():
    # Only to the step: the script requeues the task.
    cluster.run('scancel', '--signal=TERM', tasks[0].number)
  tasks[0].start_again()
  for restarts, task in zip((1, 0), tasks, strict=True):
    task.finish(restarts)
  final, expected = (digests(task.workdir, STEPS) for task in tasks)
  assert final == expected


def test_refused_task_is_not_requeued_for_its_aborted_peer(cluster, tmp_path):
  job = Job(cluster, cluster.launch('refused', '--nodes=2'), tmp_path)
  job.wait_for_state(*ENDED)
  shown = job.show()
  assert shown['JobState'] == 'FAILED'
  assert shown['ExitCode'] == '77:0'
  assert shown['Restarts'] == '0'


def test_job_that_loses_a_node_resumes_on_the_others(
  cluster, tmp_path, uninterrupted
):
  job = cluster.submit(
    tmp_path / 'run', '--nodes=2', '--min_nodes=1', '--exclude=drill[3-4]'
  )
  with job.paused():
    assert job.show()['NumNodes'] == '2'
    slurm_cluster.kill_node('drill2')
    cluster.run(
      'scontrol', 'update', 'NodeName=drill2', 'State=DOWN', 'Reason=drill'
    )
  job.start_again()
  job.finish(restarts=1)
  assert job.show()['NumNodes'] == '1'
  assert 'devices 2 -> 1' in job.log
  # Sums of two devices are rounded differently.
  assert digests(job.workdir, STEPS).keys() == uninterrupted.keys()
