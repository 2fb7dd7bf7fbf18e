"""Groups of processes on this machine: started, watched and ended together.

A group is one run: all of its processes or none. When one of them fails the
others cannot go on, so they get some seconds to end by themselves, which leaves
a message in their logs, and are killed then.
"""

from collections.abc import Callable
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
_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# slot -> a command for each process of the group.
MakeCommands = Callable[[int], Sequence[Sequence[str]]]


@dataclasses.dataclass
class Task:
  """One run on its way to the end.

  Attributes:
    name: '' for the only one.
    commands: makes those of an attempt; a new port for each, for example.
    crashes: attempts that crashed.
    code: the exit code, once there is nothing more to do.
  """

  name: str
  commands: MakeCommands
  crashes: int = 0
  code: int | None = None


class Supervisor:
  """Brings tasks to their end, some side by side, and starts again what can be.

  What becomes of a task depends on the exit codes of its processes alone: done,
  diverged and wrongly configured ones are over; preempted ones are started
  again; crashed ones too, until there were more than `max_restarts` crashes.
  SIGTERM, SIGINT and SIGHUP are passed on as SIGTERM, upon which trainers save;
  then nothing is started any more. A second one kills.
  """

  def __init__(
    self,
    tasks: Sequence[Task],
    *,
    slots: int,
    max_restarts: int,
    grace: float,
  ):
    """Starts nothing yet.

    Args:
      tasks: in the order in which they are started.
      slots: how many run side by side; each has a number below this.
      max_restarts: crashes that a task may recover from.
      grace: seconds for the other processes of a group when one has failed.
    """
    self._waiting = list(tasks)
    self._tasks = list(tasks)
    self._free = list(range(slots))
    self._max_restarts = max_restarts
    self._grace = grace
    self._running: list[tuple[Task, int, Group]] = []
    self._pausing: list[tuple[float, Task, int]] = []
    self._signals = 0

  def run(self) -> dict[str, int]:
    """The exit code of every task, by name; for the main thread."""
    former = {number: signal.signal(number, self._asked) for number in _ASKING}
    try:
      while self._waiting or self._running or self._pausing:
        self._start_what_can_be()
        self._end_what_is_over()
        time.sleep(_POLL_SECONDS)
    finally:
      for _, _, group in self._running:
        group.kill()
      for number, handler in former.items():
        signal.signal(number, handler)
    return {task.name: _known(task.code) for task in self._tasks}

  def _start_what_can_be(self) -> None:
    if self._signals:
      over = [task for _, task, _ in self._pausing] + self._waiting
      for task in over:
        task.code = job.PREEMPTED
      self._pausing, self._waiting = [], []
      return
    for due in [p for p in self._pausing if p[0] <= time.monotonic()]:
      self._pausing.remove(due)
      self._start(due[1], due[2])
    while self._waiting and self._free:
      self._start(self._waiting.pop(0), self._free.pop(0))

  def _start(self, task: Task, slot: int) -> None:
    group = Group(task.name, task.commands(slot), self._grace)
    self._running.append((task, slot, group))

  def _end_what_is_over(self) -> None:
    for entry in list(self._running):
      task, slot, group = entry
      code = group.poll()
      if code is None:
        continue
      self._running.remove(entry)
      pause = self._pause_before_restart(task, code)
      if pause is None:
        task.code = code
        self._free.append(slot)
      else:
        self._pausing.append((time.monotonic() + pause, task, slot))

  def _pause_before_restart(self, task: Task, code: int) -> float | None:
    """Seconds until the task is started again; None if it is not."""
    over = code in (job.DONE, job.DIVERGED, job.CONFIGURATION_ERROR)
    name = f'{task.name} ' if task.name else ''
    if over or self._signals:
      job.say(f'{name}ended with {describe(code)}')
      return None
    if code == job.PREEMPTED:
      job.say(f'{name}was preempted; starting it again')
      return 0.0
    task.crashes += 1
    if task.crashes > self._max_restarts:
      job.say(
        f'{name}ended with {describe(code)}; not started again after '
        f'{self._max_restarts} restarts'
      )
      return None
    pause = min(2.0 ** (task.crashes - 1), _LONGEST_PAUSE)
    job.say(
      f'{name}ended with {describe(code)}; restart {task.crashes} of '
      f'{self._max_restarts} in {pause:g} s'
    )
    return pause

  def _asked(self, number: int, frame) -> None:
    del frame
    self._signals += 1
    if self._signals == 1:
      job.say(f'{signal.Signals(number).name}: asking all processes to stop')
    for _, _, group in self._running:
      if self._signals == 1:
        group.ask_to_stop()
      else:
        group.kill()


class Group:
  """The processes of one attempt."""

  def __init__(
    self, name: str, commands: Sequence[Sequence[str]], grace: float
  ):
    """Starts one process for each command.

    Args:
      name: in front of the lines they print, with their numbers; '' and one
        process: nothing in front, and they may find a terminal.
      commands: programs with their arguments.
      grace: seconds for the others when one has failed.
    """
    self._grace = grace
    self._deadline: float | None = None
    self._ended: dict[int, int] = {}  # In the order in which they did.
    self._processes: list[subprocess.Popen] = []
    self._readers = []
    plain = not name and len(commands) == 1
    for rank, command in enumerate(commands):
      process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=None if plain else subprocess.PIPE,
        stderr=None if plain else subprocess.STDOUT,
        # Of its own, so that Ctrl-C reaches the launcher alone.
        start_new_session=True,
        preexec_fn=_stop_with_parent,
      )
      self._processes.append(process)
      if not plain:
        prefix = f'[{name} {rank}] ' if name else f'[{rank}] '
        reader = threading.Thread(
          target=_copy, args=(prefix, process.stdout), daemon=True
        )
        reader.start()
        self._readers.append(reader)

  def poll(self) -> int | None:
    """The group's exit code; None while any process runs."""
    for rank, process in enumerate(self._processes):
      code = process.poll()
      if code is None or rank in self._ended:
        continue
      self._ended[rank] = code
      if code != job.DONE and self._deadline is None:
        if len(self._processes) > 1:
          job.say(f'process {rank} ended with {describe(code)}')
        self._deadline = time.monotonic() + self._grace
    if len(self._ended) < len(self._processes):
      if self._deadline is not None and time.monotonic() > self._deadline:
        job.say(f'killing the others after {self._grace:g} s')
        self._deadline = float('inf')
        self.kill()
      return None
    for reader in self._readers:
      reader.join(timeout=5)  # Something else may hold the pipe.
    return verdict(list(self._ended.values()))

  def ask_to_stop(self) -> None:
    """SIGTERM for every process, upon which a trainer saves."""
    self._send(signal.SIGTERM, whole_sessions=False)

  def kill(self) -> None:
    """SIGKILL for every process and what it has started."""
    self._send(signal.SIGKILL, whole_sessions=True)

  def _send(self, number: signal.Signals, whole_sessions: bool) -> None:
    for process in self._processes:
      if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
          send = os.killpg if whole_sessions else os.kill
          send(process.pid, number)


def verdict(codes: Sequence[int]) -> int:
  """The exit code of a group from those of its processes, in order of ending.

  One that must not be started again decides; then the first crash, for the
  later ones may only follow from it; then a preemption.
  """
  for code in (job.CONFIGURATION_ERROR, job.DIVERGED):
    if code in codes:
      return code
  for code in codes:
    if code not in (job.DONE, job.PREEMPTED):
      return code if code > 0 else 128 - code  # As shells count signals.
  return job.PREEMPTED if job.PREEMPTED in codes else job.DONE


def _copy(prefix: str, stream) -> None:
  with stream:
    for line in stream:
      sys.stdout.write(prefix + line.decode(errors='replace'))
      sys.stdout.flush()


def _stop_with_parent() -> None:
  """A launcher killed with -9 must not leave trainers behind: they save."""
  if _PRCTL is not None:
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM)


def describe(code: int) -> str:
  """An exit code with its meaning."""
  names = {
    job.PREEMPTED: 'preempted',
    job.DIVERGED: 'diverged',
    job.CONFIGURATION_ERROR: 'configuration error',
    job.DONE: 'done',
  }
  number = -code if code < 0 else code - 128
  if code < 0 or code > 128:
    with contextlib.suppress(ValueError):
      return f'{code} ({signal.Signals(number).name})'
  return f'{code} ({names.get(code, "crash")})'


def _known(code: int | None) -> int:
  assert code is not None
  return code


# Looked up before any fork; only Linux has it.
_PRCTL = getattr(ctypes.CDLL(None), 'prctl', None)
