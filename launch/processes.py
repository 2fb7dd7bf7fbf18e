"""Starts, watches and restarts groups of processes on this machine.

A group holds all processes of one run. When one of them fails the others cannot
continue: they get a grace period to log the error and exit, then are killed.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import ctypes
import dataclasses
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

# Maps a slot to one command for each process of the group.
MakeCommands = Callable[[int], Sequence[Sequence[str]]]


@dataclasses.dataclass
class Task:
  """One run under supervision.

  Attributes:
    name: '' if there is only one task.
    commands: makes the commands of an attempt, so that each gets a new port.
    crashes: number of attempts that crashed.
    code: exit code of the task; None until it has finished.
  """

  name: str
  commands: MakeCommands
  crashes: int = 0
  code: int | None = None

  def restart_delay(
    self, code: int, *, max_restarts: int, stopping: bool, reason: str = ''
  ) -> float | None:
    """Logs how an attempt ended and decides whether to restart the task.

    Args:
      code: exit code of the attempt.
      max_restarts: number of crashes that are restarted.
      stopping: whether the user has stopped the launcher.
      reason: message for the log in place of the exit code.

    Returns:
      Seconds until the restart, or None if the task has finished.
    """
    name = f'{self.name} ' if self.name else ''
    ended = reason or f'{name}ended with {describe(code)}'
    if stopping or code in job.FINAL:
      job.log(ended)
      return None
    if code == job.PREEMPTED:
      job.log(f'{name}was preempted; restarting')
      return 0.0
    self.crashes += 1
    if self.crashes > max_restarts:
      job.log(f'{ended}; giving up after {max_restarts} restarts')
      return None
    delay = min(2.0 ** (self.crashes - 1), _LONGEST_PAUSE)
    job.log(f'{ended}; restart {self.crashes} of {max_restarts} in {delay:g} s')
    return delay


class Supervisor:
  """Runs tasks to completion, several at once, and restarts them.

  The exit codes of a task's processes decide: `job.FINAL` codes finish the
  task, a preempted task is restarted, a crashed one is restarted at most
  `max_restarts` times. SIGTERM, SIGINT and SIGHUP reach the processes as
  SIGTERM, on which trainers save a checkpoint; nothing is started afterwards. A
  second signal kills the processes.
  """

  def __init__(
    self, tasks: Sequence[Task], *, slots: int, max_restarts: int, grace: float
  ):
    """Starts nothing yet.

    Args:
      tasks: in the order in which they are started.
      slots: number of tasks that run at once, each in its own slot.
      max_restarts: crashes after which a task is restarted.
      grace: seconds for the other processes of a group after one has failed.
    """
    self._tasks = list(tasks)
    self._waiting = list(tasks)
    self._free_slots = list(range(slots))
    self._max_restarts = max_restarts
    self._grace = grace
    self._running: list[tuple[Task, int, Group]] = []
    self._delayed: list[tuple[float, Task, int]] = []
    self._signals = 0

  def run(self) -> dict[str, int]:
    """Returns the exit code of every task; call it from the main thread."""
    with handle_signals(self._on_signal):
      try:
        while self._waiting or self._running or self._delayed:
          self._start_tasks()
          self._collect_finished()
          time.sleep(_POLL_SECONDS)
      finally:
        for _, _, group in self._running:
          group.kill()
    return {
      task.name: task.code for task in self._tasks if task.code is not None
    }

  def _start_tasks(self) -> None:
    if self._signals:
      for task in [task for _, task, _ in self._delayed] + self._waiting:
        task.code = job.PREEMPTED
      self._delayed, self._waiting = [], []
      return
    now = time.monotonic()
    for entry in [entry for entry in self._delayed if entry[0] <= now]:
      self._delayed.remove(entry)
      self._start(entry[1], entry[2])
    while self._waiting and self._free_slots:
      self._start(self._waiting.pop(0), self._free_slots.pop(0))

  def _start(self, task: Task, slot: int) -> None:
    group = Group(task.name, task.commands(slot), self._grace)
    self._running.append((task, slot, group))

  def _collect_finished(self) -> None:
    for entry in list(self._running):
      task, slot, group = entry
      code = group.poll()
      if code is None:
        continue
      self._running.remove(entry)
      delay = task.restart_delay(
        code,
        max_restarts=self._max_restarts,
        stopping=self._signals > 0,
      )
      if delay is None:
        task.code = code
        self._free_slots.append(slot)
      else:
        self._delayed.append((time.monotonic() + delay, task, slot))

  def _on_signal(self, number: int) -> None:
    self._signals += 1
    if self._signals == 1:
      job.log(f'{signal.Signals(number).name}: stopping all processes')
    for _, _, group in self._running:
      if self._signals == 1:
        group.terminate()
      else:
        group.kill()


class Group:
  """The processes of one attempt."""

  def __init__(
    self, name: str, commands: Sequence[Sequence[str]], grace: float
  ):
    """Starts one process for each command.

    Args:
      name: prefix of the lines that the processes print, before their rank.
        One process without a name inherits the output, perhaps a terminal.
      commands: programs with their arguments.
      grace: seconds for the other processes after one has failed.
    """
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
    self._send(signal.SIGTERM, os.kill)

  def kill(self) -> None:
    """Sends SIGKILL to every process and its children."""
    self._send(signal.SIGKILL, os.killpg)

  def _send(
    self, number: signal.Signals, send: Callable[[int, int], None]
  ) -> None:
    for process in self._processes:
      if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
          send(process.pid, number)


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
  """Returns the exit code of a group.

  Codes that rule out a restart come first, then the first crash, because later
  ones may follow from it, then a preemption.

  Args:
    codes: of the processes, in the order of their exit.
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


def log_codes(codes: dict[str, int]) -> None:
  """Logs the exit code of every run of a sweep."""
  for name, code in codes.items():
    job.log(f'{name}: {describe(code)}')


def _copy(prefix: str, stream) -> None:
  with stream:
    for line in stream:
      sys.stdout.write(prefix + line.decode(errors='replace'))
      sys.stdout.flush()


def _terminate_with_parent() -> None:
  # After kill -9 of the launcher the trainers must not run on.
  if _PRCTL is not None:
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)
