"""One trainer a workdir: a second one would undo what the first one writes."""

from collections.abc import Iterator
import contextlib
import fcntl
import pathlib

from rmc_jax.errors import ConfigurationError

FILE_NAME = 'lock'


@contextlib.contextmanager
def hold(workdir: pathlib.Path) -> Iterator[None]:
  """Holds the lock of `workdir`, which is made if missing; for the primary.

  The system takes the lock back however the process ends, kill -9 included. The
  empty file stays and means nothing.

  Raises:
    ConfigurationError: another holds it, in this process or elsewhere.
  """
  workdir.mkdir(parents=True, exist_ok=True)
  with (workdir / FILE_NAME).open('a') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise ConfigurationError(
        f'Another process is training in {workdir}. Wait for its end or stop '
        'it, or choose another workdir.'
      ) from error
    yield
