"""Atomic writes: a file appears under its name complete, or not at all."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import time
from typing import BinaryIO
import uuid

_STALE_SECONDS = 24 * 3600.0


def atomic_write(path: pathlib.Path, content: bytes) -> None:
  """Replaces the file at `path`; on return its content is on the disk."""
  with atomic_writer(path) as file:
    file.write(content)


@contextlib.contextmanager
def atomic_writer(path: pathlib.Path) -> Iterator[BinaryIO]:
  """Opens a temporary file that replaces `path` when the block ends.

  If the block raises, `path` is unchanged. Several processes may write the same
  path at once; the last one to finish wins. Temporary files that killed
  processes left are removed once they are a day old.

  Args:
    path: the file to replace, in an existing folder.

  Yields:
    A seekable binary file.
  """
  _remove_stale(path)
  temporary = path.with_name(f'{path.name}.{uuid.uuid4().hex}.tmp')
  try:
    with temporary.open('wb') as file:
      yield file
      file.flush()
      # Before the rename: after a power failure the name must not refer to an
      # empty file.
      os.fsync(file.fileno())
    temporary.replace(path)
  finally:
    temporary.unlink(missing_ok=True)
  folder = os.open(path.parent, os.O_RDONLY)
  try:
    os.fsync(folder)
  finally:
    os.close(folder)


def _remove_stale(path: pathlib.Path) -> None:
  for temporary in path.parent.glob(f'{path.name}.*.tmp'):
    # The file may be another user's, or already removed by another process.
    with contextlib.suppress(OSError):
      if temporary.stat().st_mtime < time.time() - _STALE_SECONDS:
        temporary.unlink()
