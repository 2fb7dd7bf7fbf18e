"""Starts, watches and restarts groups of processes on this machine.

A group holds all processes of one run. When one of them fails the others cannot
continue: they get a grace period to log the error and exit, then are killed.
"""

import collections
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time

from launch import job

_POLL_SECONDS = 0.1
_LONGEST_PAUSE = 60.0
_PR_SET_PDEATHSIG = 1
# Looked up before any fork; exists only on Linux.
_PRCTL = getattr(ctypes.CDLL(None), 'prctl', None)


# Maps a slot to one command for each process of a run; called again for every
# attempt, so that each gets a new port.
Commands = Callable[[int], Sequence[Sequence[str]]]


class Supervisor:
  """Completes runs, several at once, and restarts them.

  The exit codes of a run's processes decide: `job.FINAL` codes finish the run,
  a preempted run is restarted, a crashed one is restarted at most
  `max_restarts` times without progress. SIGTERM, SIGINT and SIGHUP reach the
  processes as SIGTERM, on which trainers save a checkpoint; nothing is started
  afterwards. A second signal kills the processes.

  Args:
    runs: name -> commands, in the order in which they are started; the name is
      '' if there is only one.
    slots: number of runs at once, each in its own slot.
    max_restarts: crashes at the same progress after which a run is restarted.
    grace: seconds for the other processes of a group after one has failed.
    progress: name of a run -> its progress, such as the newest checkpoint.
  """

  def __init__(
    self,
    runs: Mapping[str, Commands],
    *,
    slots: int,
    max_restarts: int,
    grace: float,
    progress: Callable[[str], Hashable] = lambda name: None,
  ):
    self._waiting = iter(runs.items())
    self._slots = slots
    self._max_restarts = max_restarts
    self._progress = progress
    self._grace = grace
    # A run that never starts counts as preempted.
    self._codes = dict.fromkeys(runs, job.PREEMPTED)
    self._running: list[Group] = []
    self._signals = 0

  def run(self) -> dict[str, int]:
    """Returns the exit code of every run; call it from the main thread."""
    slots = [self._fill(slot) for slot in range(self._slots)]
    handlers = {
      number: signal.signal(number, self._on_signal)
      for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    try:
      for _ in itertools.zip_longest(*slots):
        time.sleep(_POLL_SECONDS)
    finally:
      for group in self._running:
        group.kill()
      for number, handler in handlers.items():
        signal.signal(number, handler)
    return self._codes

  def _fill(self, slot: int) -> Iterator[None]:
    """Completes one waiting run after another; yields while one runs."""
    for name, commands in self._waiting:
      crashes = collections.Counter()  # By progress.
      delay: float | None = 0.0
      while delay is not None:
        start = time.monotonic() + delay
        while time.monotonic() < start and not self._signals:
          yield
        if self._signals:
          self._codes[name] = job.PREEMPTED
          break
        group = Group(name, commands(slot), self._grace)
        self._running.append(group)
        while (code := group.poll()) is None:
          yield
        self._running.remove(group)
        self._codes[name] = code
        delay = self._restart_delay(name, code, crashes)

  def _restart_delay(
    self, name: str, code: int, crashes: collections.Counter
  ) -> float | None:
    """Returns the seconds until the restart, or None if the run is over."""
    who = f'{name} ' if name else ''
    ended = f'{who}ended with {describe(code)}'
    if self._signals or code in job.FINAL:
      job.log(ended)
      return None
    if code == job.PREEMPTED:
      job.log(f'{who}was preempted; restarting')
      return 0.0
    progress, most = self._progress(name), self._max_restarts
    crashes[progress] += 1
    count = crashes[progress]
    if count > most:
      job.log(f'{ended}; giving up after {most} restarts')
      return None
    delay = min(2.0 ** (count - 1), _LONGEST_PAUSE)
    job.log(f'{ended}; restart {count} of {most} in {delay:g} s')
    return delay

  def _on_signal(self, number: int, frame: object) -> None:
    del frame
    self._signals += 1
    if self._signals == 1:
      job.log(f'{signal.Signals(number).name}: stopping all processes')
    for group in self._running:
      if self._signals == 1:
        group.terminate()
      else:
        group.kill()


class Group:
  """The processes of one attempt.

  Args:
    name: prefix of the lines that the processes print, before their rank. One
      process without a name inherits the output, perhaps a terminal.
    grace: seconds for the other processes after one has failed.
  """

  def __init__(
    self, name: str, commands: Sequence[Sequence[str]], grace: float
  ):
    self._grace = grace
    self._deadline: float | None = None
    self._codes: dict[int, int] = {}  # By rank, in the order of exit.
    self._processes: list[subprocess.Popen] = []
    self._readers = []
    inherits = not name and len(commands) == 1
    for rank, command in enumerate(commands):
      process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=None if inherits else subprocess.PIPE,
        stderr=None if inherits else subprocess.STDOUT,
        # Ctrl-C must reach the launcher only.
        start_new_session=True,
        preexec_fn=_terminate_with_parent,
      )
      self._processes.append(process)
      if not inherits:
        prefix = f'[{name} {rank}] ' if name else f'[{rank}] '
        reader = threading.Thread(
          target=_copy, args=(prefix, process.stdout), daemon=True
        )
        reader.start()
        self._readers.append(reader)

  def poll(self) -> int | None:
    """Returns the group's exit code, or None while a process runs."""
    for rank, process in enumerate(self._processes):
      code = process.poll()
      if code is None or rank in self._codes:
        continue
      self._codes[rank] = code
      if code != job.DONE and self._deadline is None:
        if len(self._processes) > 1:
          job.log(f'process {rank} ended with {describe(code)}')
        self._deadline = time.monotonic() + self._grace
    if len(self._codes) < len(self._processes):
      if self._deadline is not None and time.monotonic() > self._deadline:
        job.log(f'killing the other processes after {self._grace:g} s')
        self._deadline = float('inf')
        self.kill()
      return None
    for reader in self._readers:
      reader.join(timeout=5)  # A grandchild may still hold the pipe.
    return group_code(list(self._codes.values()))

  def terminate(self) -> None:
    """Sends SIGTERM to every process; trainers then save a checkpoint."""
    for process in self._processes:
      process.terminate()

  def kill(self) -> None:
    """Sends SIGKILL to every process and its children."""
    for process in self._processes:
      if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
          os.killpg(process.pid, signal.SIGKILL)


def group_code(codes: Sequence[int]) -> int:
  """Returns the exit code of a group from those in the order of exit.

  Codes that rule out a restart come first, then the first crash, because later
  ones may follow from it, then a preemption.
  """
  for code in (job.CONFIGURATION_ERROR, job.DIVERGED):
    if code in codes:
      return code
  for code in codes:
    if code not in (job.DONE, job.PREEMPTED):
      return code if code > 0 else 128 - code  # Shells map signals this way.
  return job.PREEMPTED if job.PREEMPTED in codes else job.DONE


def describe(code: int) -> str:
  """Returns an exit code with its meaning."""
  names = {
    job.PREEMPTED: 'preempted',
    job.DIVERGED: 'diverged',
    job.CONFIGURATION_ERROR: 'configuration error',
    job.DONE: 'done',
  }
  if code < 0 or code > 128:
    with contextlib.suppress(ValueError):
      number = -code if code < 0 else code - 128
      return f'{code} ({signal.Signals(number).name})'
  return f'{code} ({names.get(code, "crash")})'


def _copy(prefix: str, stream) -> None:
  with stream:
    for line in stream:
      sys.stdout.write(prefix + line.decode(errors='replace'))
      sys.stdout.flush()


def _terminate_with_parent() -> None:
  # After kill -9 of the launcher the trainers must not run on.
  if _PRCTL is not None:
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)
