"""Locks a workdir: a second trainer would overwrite its files."""

from collections.abc import Iterator
import contextlib
import fcntl
import pathlib

from rmc_jax.errors import ConfigurationError

FILE_NAME = 'lock'


@contextlib.contextmanager
def acquire_lock(workdir: pathlib.Path) -> Iterator[None]:
  """Holds the lock of `workdir`, created if missing, in the primary process.

  The kernel releases it when the process ends, even by SIGKILL.

  Raises:
    ConfigurationError: another process or context holds the lock, or the file
      system has no locks.
  """
  workdir.mkdir(parents=True, exist_ok=True)
  with (workdir / FILE_NAME).open('a') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise ConfigurationError(
        f'Another process is training in {workdir}. Wait until it ends, stop '
        'it, or choose another --workdir.'
      ) from error
    except OSError as error:
      raise ConfigurationError(
        f'The file system of {workdir} does not support file locks (flock: '
        f'{error.strerror}), without which two runs could overwrite each '
        'other. Choose a --workdir on another file system.'
      ) from error
    yield
