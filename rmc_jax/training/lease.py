"""A lock in a bucket, where a killed process cannot release it.

The lock is an object that its holder rewrites every few seconds. A process that
finds it watches it: if it changes, its holder is alive; if it does not for
SECONDS, it may be taken. Every write is conditional on the generation of the
object that was read, so of two processes that take it at once, one fails.

A bucket cannot refuse other writes of a process that has lost the lock. The
process ends itself instead when it finds another holder, and, well before
others may take the lock, when it cannot renew it. One that was suspended for
longer may still finish a write that was under way.
"""

from collections.abc import Iterator
import contextlib
import itertools
import json
import os
import socket
import sys
import threading
import time
from typing import NoReturn
import uuid

from absl import logging
import tensorstore as ts

from rmc_jax.errors import ConfigurationError
from rmc_jax.training.progress import print_line

FILE_NAME = 'lock'
SECONDS = 60.0
_RENEWALS = 5  # in SECONDS
_LIMIT = 2 / 3  # of SECONDS, after which a holder ends itself
_NO_GENERATION = b''  # of a conditional write that was refused


@contextlib.contextmanager
def acquire_lease(store: ts.KvStore, workdir: str) -> Iterator[None]:
  """Holds the lock of `store`, the objects of `workdir`.

  Raises:
    ConfigurationError: another process holds it.
  """
  lease = _Lease(store, workdir, _wait_for_holder(store, workdir))
  lease.write(SECONDS)
  stop = threading.Event()
  thread = threading.Thread(target=lease.renew, args=(stop,), daemon=True)
  thread.start()
  try:
    yield
  finally:
    stop.set()
    thread.join()
    lease.release()


class _Lease:
  """The lock object of this process, if its generation is still this one."""

  def __init__(self, store: ts.KvStore, workdir: str, generation: bytes):
    self._store, self._workdir = store, workdir
    self._generation = generation
    self._owner = {
      'host': socket.gethostname(),
      'process': os.getpid(),
      'id': uuid.uuid4().hex,
    }
    self._counter = itertools.count()
    self._renewed = _now()

  def write(self, timeout: float) -> None:
    """Writes the lock within `timeout` seconds.

    Raises:
      ConfigurationError: it is another's.
      OSError: there is no such bucket, or the lock was removed.
      TimeoutError: it took longer.
    """
    started = _now()
    content = json.dumps(self._owner | {'renewals': next(self._counter)})
    written = self._store.write(
      FILE_NAME, content.encode(), if_equal=self._generation
    ).result(timeout=timeout)
    generation = written.generation
    if generation == _NO_GENERATION:
      left = timeout + started - _now()
      found = self._store.read(FILE_NAME).result(timeout=max(left, 0.0))
      if found.state != 'value':  # S3 answers like this for a missing bucket.
        raise OSError('NOT_FOUND: the lock could not be written')
      # Ours, if a write succeeded whose answer was lost.
      if not self._is_own(found.value):
        raise _locked(self._workdir, found.value)
      generation = found.stamp.generation
    self._generation, self._renewed = generation, started

  def renew(self, stop: threading.Event) -> None:
    """Renews the lock until `stop`; ends the process if that fails."""
    error: Exception | None = None
    while True:
      left = self._renewed + _LIMIT * SECONDS - _now()
      if left <= 0:
        _end(f'The lock in {self._workdir} could not be renewed: {error}')
      if stop.wait(min(SECONDS / _RENEWALS, left)):
        return
      try:
        self.write(max(self._renewed + _LIMIT * SECONDS - _now(), 0.0))
      except ConfigurationError as lost:
        _end(str(lost))
      except Exception as failure:  # Of the network: try again.
        error = failure

  def release(self) -> None:
    """Removes the lock, unless it is another's."""
    write = self._store.write(FILE_NAME, None, if_equal=self._generation)
    try:
      write.result(timeout=SECONDS)
    except Exception as error:  # It expires.
      logging.warning(
        'The lock in %s was not removed: %s', self._workdir, error
      )

  def _is_own(self, content: bytes) -> bool:
    return json.loads(content).get('id') == self._owner['id']


def _wait_for_holder(store: ts.KvStore, workdir: str) -> bytes:
  """Waits for the end of another's lock; returns the generation to replace.

  Raises:
    ConfigurationError: its holder is alive.
  """
  first = store.read(FILE_NAME).result()
  if first.state != 'value':
    return first.stamp.generation
  print_line(
    f'{workdir} was locked by {_describe(first.value)}; waiting up to '
    f'{SECONDS:g} s for a sign that it is alive.'
  )
  deadline = time.monotonic() + SECONDS
  while time.monotonic() < deadline:
    time.sleep(SECONDS / _RENEWALS / 2)
    found = store.read(FILE_NAME).result()
    if found.state != 'value':
      return found.stamp.generation
    if found.value != first.value:
      raise _locked(workdir, found.value)
  return first.stamp.generation


def _locked(workdir: str, content: bytes) -> ConfigurationError:
  return ConfigurationError(
    f'Another process is training in {workdir}: {_describe(content)}. Wait '
    'until it ends, stop it, or choose another --workdir.'
  )


def _describe(content: bytes) -> str:
  try:
    owner = json.loads(content)
    return f'process {owner["process"]} on {owner["host"]}'
  except (ValueError, KeyError, TypeError):
    return 'an unknown process'


def _end(reason: str) -> NoReturn:
  sys.stderr.write(f'{reason}\n')
  sys.stderr.flush()
  os._exit(1)


def _now() -> float:
  """Returns seconds that include those in which the machine was suspended."""
  boot_time = getattr(time, 'CLOCK_BOOTTIME', time.CLOCK_MONOTONIC)
  return time.clock_gettime(boot_time)
