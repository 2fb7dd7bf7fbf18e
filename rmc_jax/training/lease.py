"""A lock in a bucket, where a killed process cannot release it.

The lock is an object that its holder rewrites every few seconds. A process that
finds it watches it: if it changes, its holder is alive; if it does not for
SECONDS, it may be taken. Every write is conditional on the generation of the
object, so of two processes that take it at once, one fails.

A bucket cannot refuse other writes of a process that has lost the lock. The
process ends itself instead when it could not renew the lock for SECONDS, or
finds another holder. One that was suspended for longer may still finish a write
that was under way.
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

import tensorstore as ts

from rmc_jax.errors import ConfigurationError
from rmc_jax.training.progress import print_line

FILE_NAME = 'lock'
SECONDS = 60.0
_RENEWALS = 5  # in SECONDS
_NO_GENERATION = b''  # of a conditional write that was refused


@contextlib.contextmanager
def hold(store: ts.KvStore, workdir: str) -> Iterator[None]:
  """Holds the lock of `store`, the objects of `workdir`.

  Raises:
    ConfigurationError: another process holds it.
  """
  _wait_for_holder(store, workdir)
  lease = _Lease(store, workdir)
  lease.write()
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
  """The lock object of this process."""

  def __init__(self, store: ts.KvStore, workdir: str):
    self._store, self._workdir = store, workdir
    self._owner = {
      'host': socket.gethostname(),
      'process': os.getpid(),
      'id': uuid.uuid4().hex,
    }
    self._counter = itertools.count()
    self._generation = store.read(FILE_NAME).result().stamp.generation
    self._renewed = time.monotonic()

  def write(self) -> None:
    """Writes the lock.

    Raises:
      ConfigurationError: it is another's.
      OSError: there is no such bucket, or the lock was removed.
    """
    started = time.monotonic()
    content = json.dumps(self._owner | {'renewals': next(self._counter)})
    written = self._store.write(
      FILE_NAME, content.encode(), if_equal=self._generation
    ).result(timeout=SECONDS)
    generation = written.generation
    if generation == _NO_GENERATION:
      found = self._store.read(FILE_NAME).result(timeout=SECONDS)
      if found.state != 'value':  # S3 answers like this for a missing bucket.
        raise OSError('NOT_FOUND: the lock could not be written')
      # Ours, if a write succeeded whose answer was lost.
      if not self._is_own(found.value):
        raise _locked(self._workdir, found.value)
      generation = found.stamp.generation
    self._generation, self._renewed = generation, started

  def renew(self, stop: threading.Event) -> None:
    """Renews the lock until `stop`; ends the process if that fails."""
    while not stop.wait(SECONDS / _RENEWALS):
      try:
        self.write()
      except ConfigurationError as error:
        _end(str(error))
      except Exception as error:  # Of the network: try again.
        if time.monotonic() - self._renewed > SECONDS:
          _end(f'The lock in {self._workdir} could not be renewed: {error}')

  def release(self) -> None:
    """Removes the lock, unless it is another's."""
    self._store.write(FILE_NAME, None, if_equal=self._generation).result()

  def _is_own(self, content: bytes) -> bool:
    return json.loads(content).get('id') == self._owner['id']


def _wait_for_holder(store: ts.KvStore, workdir: str) -> None:
  """Returns once nobody holds the lock; raises if its holder is alive."""
  first = store.read(FILE_NAME).result()
  if first.state != 'value':
    return
  print_line(
    f'{workdir} was locked by {_describe(first.value)}; waiting up to '
    f'{SECONDS:g} s for a sign that it is alive.'
  )
  deadline = time.monotonic() + SECONDS
  while time.monotonic() < deadline:
    time.sleep(SECONDS / _RENEWALS / 2)
    found = store.read(FILE_NAME).result()
    if found.state != 'value':
      return
    if found.value != first.value:
      raise _locked(workdir, found.value)


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
