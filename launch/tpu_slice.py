"""The machines of a TPU VM slice while there are any, and the runs on them."""

from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time

from launch import job
from launch import processes
from launch import tpu_commands

POLL_SECONDS = 60.0  # Between two looks at the state of the machines.
_TICK = 0.2
_LONGEST_PAUSE = 60.0
_LAST_WORDS = 5.0
_MOST_FAILURES = 10  # Of the connection, in a row.
_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_GONE = ('SUSPENDING', 'SUSPENDED', 'FAILED', 'DELETING', '')
_NODE_GONE = ('PREEMPTED', 'TERMINATED', 'STOPPED', 'STOPPING', 'DELETING', '')


class _Stopped(Exception):
  """Somebody asked the launcher to stop."""


class _Taken(Exception):
  """The machines are not there any more."""


class _Failed(Exception):
  """Something that may work the next time; the message says what."""


class Slice:
  """The machines while there are any, and the runs on them."""

  def __init__(self, gcloud: tpu_commands.Gcloud):
    self._gcloud = gcloud
    self._signals = 0
    self._ours = False  # Whether there may be something to delete.
    self._ready = False  # Whether the workers have the code.
    self._was_active = False

  def run(self, runs: Sequence[job.Run]) -> dict[str, int]:
    """The exit code of every run, by name; for the main thread."""
    former = {number: signal.signal(number, self._asked) for number in _ASKING}
    # What a signal keeps from running ends as what was preempted.
    codes = {run.name: job.PREEMPTED for run in runs}
    results_are_safe = True
    try:
      # Once: machines that come later get the same code.
      _pack(self._gcloud.archive)
      with contextlib.suppress(_Stopped):
        for run in runs:
          codes[run.name] = self._bring_to_its_end(run)
    finally:
      results_are_safe = self._clear_away()
      for number, handler in former.items():
        signal.signal(number, handler)
    if not results_are_safe:
      codes = {name: code or 1 for name, code in codes.items()}
    return codes

  def _bring_to_its_end(self, run: job.Run) -> int:
    name = f'{run.name} ' if run.name else ''
    most = self._gcloud.options.max_restarts
    crashes = attempt = 0
    while True:
      self._raise_if_asked()
      try:
        self._make_ready()
        attempt += 1
        code = self._train(run, attempt)
        why = f'{name}ended with {processes.describe(code)}'
      except _Taken as taken:
        job.say(f'{taken}: asking for new machines')
        if not self._gcloud.options.bucket:
          job.say('without --bucket the run begins again from its start')
        if not self._delete():
          self._pause(_LONGEST_PAUSE)
        continue
      except _Failed as failure:
        code, why = 1, str(failure)
      over = code in (job.DONE, job.DIVERGED, job.CONFIGURATION_ERROR)
      if over or self._signals:
        job.say(why)
        return code
      if code == job.PREEMPTED:
        job.say(f'{name}was preempted; starting it again')
        continue
      crashes += 1
      if crashes > most:
        job.say(f'{why}; not started again after {most} restarts')
        return code
      pause = min(2.0 ** (crashes - 1), _LONGEST_PAUSE)
      job.say(f'{why}; restart {crashes} of {most} in {pause:g} s')
      self._pause(pause)

  def _make_ready(self) -> None:
    """Has machines with the code on them."""
    if self._ready:
      return
    self._wait_until_active()
    for command in (self._gcloud.send(), self._gcloud.install()):
      code = self._call(command)
      if code == job.CONFIGURATION_ERROR:
        job.fail('a worker cannot be set up; the reason is above')
      if code:
        self._raise_if_taken()
        raise _Failed(f'making the workers ready ended with {code}')
    self._ready = True

  def _wait_until_active(self) -> None:
    told, failures = None, 0
    while True:
      self._raise_if_asked()
      state = self._state()
      if state == '':
        self._create()
        continue
      if state is None:
        failures += 1
        if not self._ours or failures >= _MOST_FAILURES:
          job.fail('gcloud does not say how the slice is; the reason is above')
      else:
        failures = 0
        self._ours = True
      if state == 'ACTIVE':
        self._was_active = True
        return
      if state == 'FAILED' and not self._was_active:
        self._delete()
        raise _Failed(f'the request for {self._gcloud.name} has FAILED')
      if state in _GONE:
        raise _Taken(f'{self._gcloud.name} is {state}')
      if state not in (told, None):
        job.say(f'{self._gcloud.name} is {state}')
        told = state
      self._pause(POLL_SECONDS)

  def _create(self) -> None:
    # Not to be interrupted: what comes of it must be known.
    code = self._call(self._gcloud.create(), patient=True)
    self._ours = code == 0 or self._look(self._gcloud.describe()) != {}
    if code == 0:
      return
    if self._was_active:
      raise _Failed('the slice was not granted again; the reason is above')
    job.fail('the slice was not granted; the reason is above')

  def _state(self) -> str | None:
    """Of the request: '' where there is none, None where nobody knows."""
    shown = self._look(self._gcloud.describe())
    if not shown:
      return None if shown is None else ''
    (spec,) = shown['tpu']['nodeSpec']
    there = spec['node'].get('acceleratorType')
    if there != self._gcloud.accelerator_type:
      job.fail(
        f'{self._gcloud.name} is there and is {there}, not '
        f'{self._gcloud.accelerator_type}; choose another --name'
      )
    return shown['state']['state']

  def _raise_if_taken(self) -> None:
    state = self._state()
    if state in _GONE:
      raise _Taken(f'{self._gcloud.name} is {state or "gone"}')
    node = self._look(self._gcloud.describe_node())
    if node is not None and (state := node.get('state', '')) in _NODE_GONE:
      raise _Taken(f'the machines of {self._gcloud.name} are {state or "gone"}')

  def _look(self, command: Sequence[str]) -> dict | None:
    """What a describe says: {} of what is not there, None if it fails."""
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
    """The exit code of all trainers of one attempt together."""
    grace = self._gcloud.options.grace
    follower = _Follower(self._gcloud.train(run, attempt), attempt)
    asked = killed = False
    failures, kill = 0, float('inf')
    look = time.monotonic() + POLL_SECONDS
    try:
      while True:
        time.sleep(_TICK)
        connected = follower.is_running()
        if len(follower.codes) == self._gcloud.hosts:
          return processes.verdict(list(follower.codes.values()))
        if self._signals > 1:
          raise _Stopped
        if self._signals and not asked:
          asked = True
          job.say('asking the trainers to stop; once more deletes at once')
          self._call(self._gcloud.signal('TERM'), patient=True)
        now = time.monotonic()
        if any(list(follower.codes.values())):
          kill = min(kill, now + grace)
        if now > kill:
          if killed:
            self._delete()
            raise _Failed(f'not all workers of {self._gcloud.name} answer')
          job.say(f'killing the others after {grace:g} s')
          self._call(self._gcloud.signal('KILL'), patient=True)
          killed, kill = True, time.monotonic() + grace
        if now > look or not connected:
          self._raise_if_taken()
          look = time.monotonic() + POLL_SECONDS
        if not connected:
          failures = 0 if follower.lines else failures + 1
          if failures == _MOST_FAILURES:
            self._delete()
            raise _Failed(f'nobody answers on {self._gcloud.name}')
          job.say('the connection broke; the run goes on, connecting again')
          self._pause(min(2.0**failures, _LONGEST_PAUSE))
          follower.connect()
    finally:
      follower.end()

  def _clear_away(self) -> bool:
    """Leaves nothing that costs money, or says so; whether results are safe."""
    if not self._ours:
      return True
    wanted = self._ready and not self._gcloud.options.bucket
    if wanted and self._signals < 2:
      if self._call(self._gcloud.fetch(), patient=True):
        job.say('the results could not be copied from the worker')
        self._say_what_is_left()
        return False
      job.say('the results are in the folder runs')
    if self._gcloud.options.keep:
      self._say_what_is_left()
    else:
      self._delete()
    return True

  def _delete(self) -> bool:
    self._ready = False
    for _ in range(3):
      if self._call(self._gcloud.delete(), patient=True) == 0:
        job.say(f'{self._gcloud.name} is deleted')
        self._ours = False
        return True
      time.sleep(_TICK)
    self._say_what_is_left()
    return False

  def _say_what_is_left(self) -> None:
    job.say(
      f'{self._gcloud.name} may be there still and cost money; to delete it: '
      f'{job.shell(self._gcloud.delete())}'
    )

  def _call(self, command: Sequence[str], patient: bool = False) -> int:
    """Runs a command; a signal ends it, unless `patient`."""
    with _start(command) as process:
      while process.poll() is None:
        if self._signals and not patient:
          _end(process)
          raise _Stopped
        time.sleep(_TICK)
    return process.returncode

  def _pause(self, seconds: float) -> None:
    """Until then or until a signal comes."""
    until, signals = time.monotonic() + seconds, self._signals
    while time.monotonic() < until and self._signals == signals:
      time.sleep(_TICK)

  def _raise_if_asked(self) -> None:
    if self._signals:
      raise _Stopped

  def _asked(self, number: int, frame) -> None:
    del frame
    self._signals += 1
    job.say(f'{signal.Signals(number).name}: ending')


class _Follower:
  """Prints what the trainers print, and takes note of how they end.

  Attributes:
    codes: exit codes by worker, of those that have ended.
    lines: how many came over this connection.
  """

  def __init__(self, command: Sequence[str], attempt: int):
    self.codes: dict[str, int] = {}
    self._command = command
    self._ended = re.compile(
      rf'rmc_jax: attempt {attempt} on (\S+) ended with (\d+)\s*'
    )
    self.connect()

  def connect(self) -> None:
    """Begins, or begins again."""
    self.lines = 0
    self._process = _start(self._command, stdout=subprocess.PIPE)
    self._reader = threading.Thread(target=self._read, daemon=True)
    self._reader.start()

  def is_running(self) -> bool:
    """Whether there may be more to come."""
    return self._reader.is_alive()

  def end(self) -> None:
    """Disconnects; the trainers go on."""
    self._reader.join(timeout=_LAST_WORDS)
    if self._process.poll() is None:
      _end(self._process)
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
  # A session of its own, so that Ctrl-C reaches the launcher alone.
  return subprocess.Popen(
    command, stdin=subprocess.DEVNULL, start_new_session=True, **streams
  )


def _end(process: subprocess.Popen) -> None:
  with contextlib.suppress(ProcessLookupError):
    os.killpg(process.pid, signal.SIGKILL)


def _pack(archive: str) -> None:
  """Writes all files of the checkout that git does not ignore."""
  listed = subprocess.run(
      ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
      cwd=job.ROOT, stdout=subprocess.PIPE, text=True, check=False,
  )  # fmt: skip
  if listed.returncode:
    job.fail(f'{job.ROOT} is sent to the workers, and is no checkout of git')
  path = pathlib.Path(archive)
  path.parent.mkdir(parents=True, exist_ok=True)
  with tarfile.open(path, 'w:gz') as file:
    for name in sorted(set(listed.stdout.split('\0')) - {''}):
      # git still lists what was removed by hand.
      if os.path.lexists(job.ROOT / name):
        file.add(job.ROOT / name, name, recursive=False)
