"""Starts, watches and restarts groups of processes on this machine.

A group holds all processes of one run. When one of them fails the others cannot
continue: they get a grace period to log the error and exit, then are killed.
"""

from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import ctypes
import dataclasses
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


@dataclasses.dataclass
class Task:
  """One run under supervision.

  Attributes:
    name: '' if there is only one task.
    commands: maps a slot to one command for each process of the group; called
      for every attempt, so that each gets a new port.
    crashes: number of attempts that crashed.
  """

  name: str
  commands: Callable[[int], Sequence[Sequence[str]]]
  crashes: int = 0


class Supervisor:
  """Runs tasks to completion, several at once, and restarts them.

  The exit codes of a task's processes decide: `job.FINAL` codes finish the
  task, a preempted task is restarted, a crashed one is restarted at most
  `max_restarts` times. SIGTERM, SIGINT and SIGHUP reach the processes as
  SIGTERM, on which trainers save a checkpoint; nothing is started afterwards. A
  second signal kills the processes.

  Args:
    tasks: in the order in which they are started.
    slots: number of tasks that run at once, each in its own slot.
    max_restarts: crashes after which a task is restarted.
    grace: seconds for the other processes of a group after one has failed.
  """

  def __init__(
    self, tasks: Sequence[Task], *, slots: int, max_restarts: int, grace: float
  ):
    self._waiting = iter(tasks)
    self._slots = slots
    self._max_restarts = max_restarts
    self._grace = grace
    # In the order of the tasks; a task that never starts counts as preempted.
    self._codes = {task.name: job.PREEMPTED for task in tasks}
    self._running: list[Group] = []
    self._signals = 0

  def run(self) -> dict[str, int]:
    """Returns the exit code of every task; call it from the main thread."""
    slots = [self._fill(slot) for slot in range(self._slots)]
    with handle_signals(self._on_signal):
      try:
        for _ in itertools.zip_longest(*slots):
          time.sleep(_POLL_SECONDS)
      finally:
        for group in self._running:
          group.kill()
    return self._codes

  def _fill(self, slot: int) -> Iterator[None]:
    """Completes one waiting task after another; yields while one runs."""
    for task in self._waiting:
      self._codes[task.name] = yield from self._complete(task, slot)

  def _complete(self, task: Task, slot: int) -> Generator[None, None, int]:
    """Runs the attempts of a task; returns its exit code."""
    delay = 0.0
    while True:
      start = time.monotonic() + delay
      while time.monotonic() < start and not self._signals:
        yield
      if self._signals:
        return job.PREEMPTED
      group = Group(task.name, task.commands(slot), self._grace)
      self._running.append(group)
      while (code := group.poll()) is None:
        yield
      self._running.remove(group)
      delay = self._restart_delay(task, code)
      if delay is None:
        return code

  def _restart_delay(self, task: Task, code: int) -> float | None:
    """Returns the seconds until the restart, or None if the task is over."""
    name = f'{task.name} ' if task.name else ''
    ended = f'{name}ended with {describe(code)}'
    if self._signals or code in job.FINAL:
      job.log(ended)
      return None
    if code == job.PREEMPTED:
      job.log(f'{name}was preempted; restarting')
      return 0.0
    task.crashes += 1
    most = self._max_restarts
    if task.crashes > most:
      job.log(f'{ended}; giving up after {most} restarts')
      return None
    delay = min(2.0 ** (task.crashes - 1), _LONGEST_PAUSE)
    job.log(f'{ended}; restart {task.crashes} of {most} in {delay:g} s')
    return delay

  def _on_signal(self, number: int) -> None:
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
    commands: programs with their arguments; each is started.
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


@contextlib.contextmanager
def handle_signals(handler: Callable[[int], None]) -> Iterator[None]:
  """Calls `handler` for SIGTERM, SIGINT and SIGHUP inside the context."""
  previous = {
    number: signal.signal(number, lambda number, _: handler(number))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
  }
  try:
    yield
  finally:
    for number, former in previous.items():
      signal.signal(number, former)


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
