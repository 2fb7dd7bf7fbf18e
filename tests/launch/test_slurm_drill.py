"""Tests `launch.slurm` on a real Slurm, with a requeue."""

import re
import subprocess
import sys
import time

import pytest

from tests.launch import slurm_cluster
from tests.launch.test_local import digests
from tests.launch.test_local import RUN
from tests.launch.test_local import TINY

ENDED = ('COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'NODE_FAIL')

obstacle = slurm_cluster.obstacle()
pytestmark = [
  pytest.mark.slow,
  pytest.mark.multiprocess,
  pytest.mark.skipif(obstacle is not None, reason=str(obstacle)),
]


def submit(checkout, environment, workdir, *flags):
  submitted = subprocess.run(
      [
          sys.executable, '-m', 'launch.slurm', 'nth_farthest', *TINY,
          f'{RUN}.num_steps=2000', f'--workdir={workdir}', *flags,
      ],
      cwd=checkout,
      env=environment | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': ''},
      capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert submitted.returncode == 0, submitted.stderr
  return re.search(r'Submitted batch job (\d+)', submitted.stdout)[1]


def show_job(environment, number):
  text = subprocess.run(
      ['scontrol', 'show', 'job', number],
      env=environment, capture_output=True, text=True, check=True,
  ).stdout  # fmt: skip
  return dict(re.findall(r'(\w+)=(\S*)', text))


def wait_for(condition, log, seconds=240):
  for _ in range(5 * seconds):
    if condition():
      return
    time.sleep(0.2)
  pytest.fail(log.read_text() if log.exists() else f'{log} does not exist')


def test_requeued_job_equals_an_uninterrupted_one(checkout, tmp_path):
  with slurm_cluster.running(tmp_path, nodes=2) as environment:
    final = {}
    for name in ('uninterrupted', 'requeued'):
      workdir = tmp_path / name
      number = submit(checkout, environment, workdir, '--nodes=2')
      log = checkout / f'runs/slurm/nth_farthest-{number}.log'
      if name == 'requeued':
        wait_for(lambda w=workdir: (w / 'checkpoints/300').exists(), log)
        subprocess.run(
          ['scontrol', 'requeue', number], env=environment, check=True
        )
        wait_for(
          lambda n=number: show_job(environment, n)['JobState'] == 'PENDING',
          log,
        )
        # Otherwise Slurm waits for two minutes.
        subprocess.run(
          ['scontrol', 'update', f'JobId={number}', 'StartTime=now'],
          env=environment,
          check=True,
        )
      wait_for(
        lambda n=number: show_job(environment, n)['JobState'] in ENDED, log
      )
      assert show_job(environment, number)['JobState'] == 'COMPLETED', (
        log.read_text()
      )
      final[name] = digests(workdir, 2000)
    assert show_job(environment, number)['Restarts'] == '1'
  output = log.read_text()
  assert re.search(r'resuming at step [1-9]', output), output
  assert final['requeued'] == final['uninterrupted']
