"""Creates a TPU VM slice, runs experiments on it and deletes it."""

from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import threading
import time

from launch import job
from launch import processes
from launch import tpu_commands

POLL_SECONDS = 60.0  # Between two queries of the state of the machines.
_TICK = 0.2
_LONGEST_PAUSE = 60.0
_DRAIN_SECONDS = 5.0
_MAX_FAILURES = 10  # Consecutive failures of the connection.
_GONE = ('SUSPENDING', 'SUSPENDED', 'FAILED', 'DELETING', '')
_NODE_GONE = ('PREEMPTED', 'TERMINATED', 'STOPPED', 'STOPPING', 'DELETING', '')


class _Stopped(Exception):
  """The user stopped the launcher."""


class _Taken(Exception):
  """The machines are gone."""


class _Failed(Exception):
  """A step failed that may succeed in another attempt."""


class Slice:
  """A slice of TPU VMs and the runs on it."""

  def __init__(self, gcloud: tpu_commands.Gcloud):
    self._gcloud = gcloud
    self._signals = 0
    self._ours = False  # Whether there may be a slice to delete.
    self._ready = False  # Whether the workers have the code.
    self._was_active = False

  def run(self, runs: Sequence[job.Run]) -> dict[str, int]:
    """Returns the exit code of every run; call it from the main thread."""
    # Runs that a signal keeps from starting count as preempted.
    codes = {run.name: job.PREEMPTED for run in runs}
    results_are_safe = True
    with processes.handle_signals(self._on_signal):
      try:
        # Only once, so that replacement machines get the same code.
        _pack(self._gcloud.archive)
        with contextlib.suppress(_Stopped):
          for run in runs:
            codes[run.name] = self._complete(run)
      finally:
        results_are_safe = self._clean_up()
    if not results_are_safe:
      codes = {name: code or 1 for name, code in codes.items()}
    return codes

  def _complete(self, run: job.Run) -> int:
    task = processes.Task(run.name, lambda slot: [])
    attempt = 0
    while True:
      self._raise_if_stopped()
      reason = ''
      try:
        self._make_ready()
        attempt += 1
        code = self._train(run, attempt)
      except _Taken as taken:
        job.log(f'{taken}: requesting new machines')
        if not self._gcloud.options.bucket:
          job.log('without --bucket the run starts from the beginning')
        if not self._delete():
          self._pause(_LONGEST_PAUSE)
        continue
      except _Failed as failure:
        code, reason = 1, str(failure)
      delay = task.restart_delay(
        code,
        max_restarts=self._gcloud.options.max_restarts,
        stopping=self._signals > 0,
        reason=reason,
      )
      if delay is None:
        return code
      self._pause(delay)

  def _make_ready(self) -> None:
    """Waits for the machines and installs the code on them."""
    if self._ready:
      return
    self._wait_until_active()
    for command in (self._gcloud.send(), self._gcloud.install()):
      code = self._call(command)
      if code == job.CONFIGURATION_ERROR:
        job.fail('the setup of a worker failed with the error above')
      if code:
        self._raise_if_taken()
        raise _Failed(f'the setup of the workers failed with exit code {code}')
    self._ready = True

  def _wait_until_active(self) -> None:
    logged, failures = None, 0
    while True:
      self._raise_if_stopped()
      state = self._state()
      if state == '':
        self._create()
        continue
      if state is None:
        failures += 1
        if not self._ours or failures >= _MAX_FAILURES:
          job.fail('gcloud cannot describe the slice; see the error above')
      else:
        failures = 0
        self._ours = True
      if state == 'ACTIVE':
        self._was_active = True
        return
      if state == 'FAILED' and not self._was_active:
        self._delete()
        raise _Failed(f'the request for {self._gcloud.name} is FAILED')
      if state in _GONE:
        raise _Taken(f'{self._gcloud.name} is {state}')
      if state not in (logged, None):
        job.log(f'{self._gcloud.name} is {state}')
        logged = state
      self._pause(POLL_SECONDS)

  def _create(self) -> None:
    # Uninterruptible, so that the outcome is known.
    code = self._call(self._gcloud.create(), interruptible=False)
    self._ours = code == 0 or self._describe(self._gcloud.describe()) != {}
    if code == 0:
      return
    if self._was_active:
      raise _Failed('the slice was refused this time; see the error above')
    job.fail('the slice was refused; see the error above')

  def _state(self) -> str | None:
    """Returns the state of the request; '' if absent, None if unknown."""
    request = self._describe(self._gcloud.describe())
    if not request:
      return None if request is None else ''
    (spec,) = request['tpu']['nodeSpec']
    kind = spec['node'].get('acceleratorType')
    if kind != self._gcloud.accelerator_type:
      job.fail(
        f'--name={self._gcloud.name} exists and is {kind}, not '
        f'{self._gcloud.accelerator_type}; choose another --name'
      )
    return request['state']['state']

  def _raise_if_taken(self) -> None:
    state = self._state()
    if state in _GONE:
      raise _Taken(f'{self._gcloud.name} is {state or "gone"}')
    node = self._describe(self._gcloud.describe_node())
    if node is not None and (state := node.get('state', '')) in _NODE_GONE:
      raise _Taken(f'the machines of {self._gcloud.name} are {state or "gone"}')

  def _describe(self, command: Sequence[str]) -> dict | None:
    """Returns the output of a describe; {} if absent, None if it fails."""
    with _start(
      command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
      out, error = process.communicate()
    if process.returncode == 0:
      return json.loads(out)
    if b'NOT_FOUND' in error:
      return {}
    sys.stderr.write(error.decode(errors='replace'))
    return None

  def _train(self, run: job.Run, attempt: int) -> int:
    """Returns the exit code of one attempt, of all trainers together."""
    grace = self._gcloud.options.grace
    follower = _Follower(self._gcloud.train(run, attempt), attempt)
    stopped = killed = False
    failures, kill_time = 0, float('inf')
    poll_time = time.monotonic() + POLL_SECONDS
    try:
      while True:
        time.sleep(_TICK)
        connected = follower.is_running()
        if len(follower.codes) == self._gcloud.hosts:
          return processes.group_code(list(follower.codes.values()))
        if self._signals > 1:
          raise _Stopped
        if self._signals and not stopped:
          stopped = True
          job.log('stopping the trainers; a second signal deletes the slice')
          self._call(self._gcloud.signal('TERM'), interruptible=False)
        now = time.monotonic()
        if any(list(follower.codes.values())):
          kill_time = min(kill_time, now + grace)
        if now > kill_time:
          if killed:
            self._delete()
            raise _Failed(f'a worker of {self._gcloud.name} does not respond')
          job.log(f'killing the other processes after {grace:g} s')
          self._call(self._gcloud.signal('KILL'), interruptible=False)
          killed, kill_time = True, time.monotonic() + grace
        if now > poll_time or not connected:
          self._raise_if_taken()
          poll_time = time.monotonic() + POLL_SECONDS
        if not connected:
          failures = 0 if follower.lines else failures + 1
          if failures == _MAX_FAILURES:
            self._delete()
            raise _Failed(f'{self._gcloud.name} does not respond')
          job.log('the connection broke; the run continues, reconnecting')
          self._pause(min(2.0**failures, _LONGEST_PAUSE))
          follower.connect()
    finally:
      follower.disconnect()

  def _clean_up(self) -> bool:
    """Deletes the slice unless it is kept; returns whether results are safe."""
    if not self._ours:
      return True
    wanted = self._ready and not self._gcloud.options.bucket
    if wanted and self._signals < 2:
      if self._call(self._gcloud.fetch(), interruptible=False):
        job.log('the results could not be copied from the worker')
        self._log_leftover()
        return False
      job.log('the results are in runs/')
    if self._gcloud.options.keep:
      self._log_leftover()
    else:
      self._delete()
    return True

  def _delete(self) -> bool:
    self._ready = False
    for _ in range(3):
      if self._call(self._gcloud.delete(), interruptible=False) == 0:
        job.log(f'deleted {self._gcloud.name}')
        self._ours = False
        return True
      time.sleep(_TICK)
    self._log_leftover()
    return False

  def _log_leftover(self) -> None:
    job.log(
      f'{self._gcloud.name} may still exist and cost money; to delete it: '
      f'{shlex.join(self._gcloud.delete())}'
    )

  def _call(self, command: Sequence[str], interruptible: bool = True) -> int:
    """Returns the exit code of a command; a signal may interrupt it."""
    with _start(command) as process:
      while process.poll() is None:
        if self._signals and interruptible:
          _kill(process)
          raise _Stopped
        time.sleep(_TICK)
    return process.returncode

  def _pause(self, seconds: float) -> None:
    """Waits; a signal ends the wait."""
    end, signals = time.monotonic() + seconds, self._signals
    while time.monotonic() < end and self._signals == signals:
      time.sleep(_TICK)

  def _raise_if_stopped(self) -> None:
    if self._signals:
      raise _Stopped

  def _on_signal(self, number: int) -> None:
    self._signals += 1
    job.log(f'{signal.Signals(number).name}: stopping')


class _Follower:
  """Prints the output of the trainers and records their exit codes.

  Attributes:
    codes: exit codes of the workers that have ended, by name.
    lines: number of lines received over this connection.
  """

  def __init__(self, command: Sequence[str], attempt: int):
    self.codes: dict[str, int] = {}
    self._command = command
    self._ended = re.compile(
      rf'rmc_jax: attempt {attempt} on (\S+) ended with (\d+)\s*'
    )
    self.connect()

  def connect(self) -> None:
    """Connects or reconnects."""
    self.lines = 0
    self._process = _start(self._command, stdout=subprocess.PIPE)
    self._reader = threading.Thread(target=self._read, daemon=True)
    self._reader.start()

  def is_running(self) -> bool:
    """Returns whether the connection is open."""
    return self._reader.is_alive()

  def disconnect(self) -> None:
    """Disconnects; the trainers continue."""
    self._reader.join(timeout=_DRAIN_SECONDS)
    if self._process.poll() is None:
      _kill(self._process)
    self._reader.join()

  def _read(self) -> None:
    with self._process as process:
      assert process.stdout is not None
      for line in process.stdout:
        self.lines += 1
        text = line.decode(errors='replace')
        if ended := self._ended.fullmatch(text):
          self.codes[ended[1]] = int(ended[2])
        else:
          sys.stdout.write(text)
          sys.stdout.flush()


def _start(command: Sequence[str], **streams) -> subprocess.Popen:
  # Ctrl-C must reach the launcher only.
  return subprocess.Popen(
    command, stdin=subprocess.DEVNULL, start_new_session=True, **streams
  )


def _kill(process: subprocess.Popen) -> None:
  with contextlib.suppress(ProcessLookupError):
    os.killpg(process.pid, signal.SIGKILL)


def _pack(archive: str) -> None:
  """Packs all files of the checkout that git does not ignore."""
  listed = subprocess.run(
      ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
      cwd=job.ROOT, stdout=subprocess.PIPE, text=True, check=False,
  )  # fmt: skip
  if listed.returncode:
    job.fail(f'{job.ROOT} must be a git checkout, to be sent to the workers')
  path = pathlib.Path(archive)
  path.parent.mkdir(parents=True, exist_ok=True)
  with tarfile.open(path, 'w:gz') as file:
    for name in sorted(set(listed.stdout.split('\0')) - {''}):
      # git also lists deleted files that were not staged.
      if os.path.lexists(job.ROOT / name):
        file.add(job.ROOT / name, name, recursive=False)
