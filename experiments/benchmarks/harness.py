"""Runs implementations in separate processes and interleaves their trials.

Each implementation is a program of workers/ that answers the questions of
workers/serve.py and is idle while another one works. Trials alternate
(A B C A B C ...), so what slows the machine down for a minute slows all of
them, and ratios are taken within a trial.
"""

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
from multiprocessing import connection
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from rmc_jax.parity import reference
from rmc_jax.parity.reference import CHECKOUT

# A trial has at least two steps, so that a single outlier does not decide it.
_MIN_STEPS, _MAX_STEPS = 2, 500

# Makes glibc ask the kernel for large pages, as launch/train.sh does. XLA
# allocates the memory of a step anew in each call, and page faults in small
# pages take a fifth of some steps.
LARGE_PAGES = 'glibc.malloc.hugetlb=1'


class Failed(Exception):
  """An implementation died, hung, reported an error or disagrees."""


class Session(contextlib.ExitStack):
  """The implementations of a benchmark at one size, while they run.

  Attributes:
    options: device, trials, trial_seconds and limit.
    folder: a temporary folder.
    entries: implementation -> its part of the JSON file: `about`, `build` (kind
      of step -> seconds and other facts), `memory_bytes` (peak of the first
      kind of step), the result of `check`, `seconds` (kind of step ->
      [trial][step]); or `left_out`, the reason.
  """

  def __init__(self, options: argparse.Namespace):
    super().__init__()
    self.folder = pathlib.Path(
      self.enter_context(tempfile.TemporaryDirectory())
    )
    self.entries: dict[str, dict[str, Any]] = {}
    self.options = options
    self._workers: dict[str, Worker] = {}
    self._required: set[str] = set()
    self._idle_share = 0.0

  def add(
    self,
    name: str,
    worker: str,
    request: Mapping[str, Any],
    *,
    steps: Sequence[str] = ('train',),
    check: Callable[[dict[str, np.ndarray]], Mapping[str, Any]] | None = None,
    variables: Sequence[Mapping[str, str]] = ({},),
    required: bool = False,
  ) -> None:
    """Starts an implementation, builds its steps and checks its results.

    Args:
      name: the key in `entries`.
      worker: a module of workers/.
      request: what the worker loads.
      steps: the kinds of step to build.
      check: takes the results; returns facts for the entry, or raises Failed.
      variables: further environment variables of each process.
      required: whether a failure, now or later, ends the benchmark with Failed.
    """
    entry = self.entries[name] = {}
    if required:
      self._required.add(name)
    if not os.path.exists(command(worker)[0]):
      self.leave_out(name, 'not installed: run launch/benchmark.sh')
      return
    _log(f'{name}: building')
    base = environment(self.options.device, self.folder)
    if worker.startswith('sonnet'):
      base.pop('XLA_FLAGS', None)  # TensorFlow refuses those of a newer XLA.
    running = self._workers[name] = Worker(
      command(worker), [{**base, **more} for more in variables]
    )
    self.callback(running.stop)
    limit = self.options.limit
    try:
      entry |= running.ask(limit, ask='load', **request)
      entry['build'] = {}
      for step in steps:
        entry['build'][step] = running.ask(limit, ask='build', step=step)
        if 'memory_bytes' not in entry:
          entry |= running.ask(limit, ask='memory', step=step)
      if check:
        path = self.folder / 'results.npz'
        running.ask(limit, ask='check', path=str(path))
        with np.load(path) as file:
          entry |= check(dict(file))
    except Failed as failed:
      self.leave_out(name, str(failed))

  def leave_out(self, name: str, reason: str) -> None:
    """Records why an implementation is not timed, and stops it."""
    if name in self._required:
      raise Failed(f'{name}: {reason}')
    self.entries.setdefault(name, {})['left_out'] = reason
    if name in self._workers:
      self._workers.pop(name).stop()

  def time(self, step: str = 'train') -> None:
    """Runs the trials of one kind of step, after one trial to warm up."""
    options, workers = self.options, self._workers
    _log(f'{step}: {options.trials} trials of {", ".join(workers)}')
    steps = dict.fromkeys(workers, _MIN_STEPS)
    seconds: dict[str, list[list[float]]] = {name: [] for name in workers}
    start = time.monotonic()
    idle = {name: -worker.cpu_seconds() for name, worker in workers.items()}
    for trial in range(-1, options.trials):
      for name, worker in list(workers.items()):
        idle[name] += worker.cpu_seconds()
        try:
          answer = worker.ask(
            options.limit, ask='run', step=step, count=steps[name]
          )
        except Failed as failed:
          self.leave_out(name, str(failed))
          continue
        idle[name] -= worker.cpu_seconds()
        if trial < 0:
          fitting = options.trial_seconds / max(min(answer['seconds']), 1e-9)
          steps[name] = min(max(round(fitting), _MIN_STEPS), _MAX_STEPS)
        else:
          seconds[name].append(answer['seconds'])
    elapsed = time.monotonic() - start
    for name, worker in workers.items():
      self.entries[name].setdefault('seconds', {})[step] = seconds[name]
      share = (idle[name] + worker.cpu_seconds()) / elapsed
      self._idle_share = max(self._idle_share, share)

  def result(self, **settings: Any) -> dict[str, Any]:
    """Returns the settings, the entries and the idle CPU share."""
    return {
      **settings,
      'implementations': self.entries,
      # The largest share of a core that one used while others worked.
      'idle_share': self._idle_share,
    }


class Worker:
  """A running implementation: one process, or several of one job."""

  def __init__(
    self, command: Sequence[str], environments: Sequence[Mapping[str, str]]
  ):
    """Starts a process in each environment."""
    self._errors = [
      tempfile.TemporaryFile('w+', errors='replace')  # noqa: SIM115
      for _ in environments
    ]
    self._processes: list[Any] = [  # subprocess.Popen, with pipes
      subprocess.Popen(
        command,
        env=environment,
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        bufsize=1,  # Sends every line at once.
        start_new_session=True,  # `stop` also ends what the process started.
      )
      for environment, errors in zip(environments, self._errors, strict=True)
    ]

  def ask(self, limit: float, **question: Any) -> dict[str, Any]:
    """Sends a question to all processes and returns the first one's answer.

    Stops all of them and raises Failed if one dies, answers with an error or
    not within `limit` seconds. Adds `process`, its index, to the question.
    """
    deadline = time.monotonic() + limit
    answers, waiting = {}, {}
    try:
      for index, process in enumerate(self._processes):
        line = json.dumps(question | {'process': index})
        with contextlib.suppress(BrokenPipeError):  # There will be no answer.
          process.stdin.write(f'{line}\n')
        waiting[process.stdout] = index
      while waiting:
        ready = connection.wait(list(waiting), deadline - time.monotonic())
        if not ready:
          raise Failed(f'no answer to "{question["ask"]}" in {limit:g} s')
        for pipe in ready:
          index = waiting.pop(pipe)
          answers[index] = self._read(index)
    except Failed:
      self.stop()
      raise
    return answers[0]

  def _read(self, index: int) -> dict[str, Any]:
    line = self._processes[index].stdout.readline()
    if not line:
      code = self._processes[index].wait()
      self._errors[index].seek(0)
      errors = self._errors[index].read().strip() or 'no output'
      raise Failed(f'died with exit code {code}: {errors.splitlines()[-1]}')
    answer = json.loads(line)
    if 'error' in answer:
      raise Failed(answer['error'])
    return answer

  def cpu_seconds(self) -> float:
    """Returns the CPU time used since the start; 0 where unknown."""
    total = 0.0
    for process in self._processes:
      with contextlib.suppress(OSError):
        stat = pathlib.Path(f'/proc/{process.pid}/stat').read_text()
        user, system = stat.rpartition(')')[2].split()[11:13]
        total += (int(user) + int(system)) / os.sysconf('SC_CLK_TCK')
    return total

  def stop(self) -> None:
    """Kills the processes and their children and closes the pipes."""
    for process, errors in zip(self._processes, self._errors, strict=True):
      if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
      process.wait()
      process.stdout.close()
      errors.close()
      with contextlib.suppress(BrokenPipeError):  # unsent data
        process.stdin.close()


def command(worker: str) -> list[str]:
  """Returns how to start a module of workers/ in its own environment."""
  pythons = {
    'sonnet': reference.home() / 'reference/bin/python',
    'torch': benchmark_home() / 'torch/bin/python',
  }
  python = pythons.get(worker.partition('_')[0], sys.executable)
  return [str(python), '-m', f'experiments.benchmarks.workers.{worker}']


def benchmark_home() -> pathlib.Path:
  """Returns where launch/benchmark.sh installs PyTorch."""
  return pathlib.Path(
    os.environ.get('RMC_BENCHMARK_HOME', CHECKOUT / '.benchmark')
  )


def environment(device: str, folder: str | os.PathLike) -> dict[str, str]:
  """Returns the environment variables of every worker.

  Compilers put their files into `folder`, so every build starts without any.
  """
  return {
    **os.environ,
    'PYTHONPATH': str(CHECKOUT),
    'JAX_PLATFORMS': 'cuda' if device == 'gpu' else 'cpu',
    # Build times include compilation.
    'JAX_ENABLE_COMPILATION_CACHE': 'false',
    'TORCHINDUCTOR_CACHE_DIR': os.path.join(folder, 'inductor'),
    'TORCHINDUCTOR_FORCE_DISABLE_CACHES': '1',
    # Several implementations share one GPU.
    'XLA_PYTHON_CLIENT_PREALLOCATE': 'false',
    # Idle OpenMP threads must not spin during the trials of others.
    'KMP_BLOCKTIME': '1',
    'GLIBC_TUNABLES': os.environ.get('GLIBC_TUNABLES', LARGE_PAGES),
  }


def _log(line: str) -> None:
  print(line, file=sys.stderr, flush=True)
