"""Files written piece by piece that appear under their names whole or never."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import time
from typing import BinaryIO
import uuid

_ABANDONED = 24 * 3600.0  # seconds


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[BinaryIO]:
  """A file to write, which takes the place of `path` when the block is left.

  When the block fails, `path` stays as it was. Several processes may write the
  same file at once; that of the last one stays, whole. What a process that was
  killed has left beside it is removed when nobody has written to it for a day.

  Args:
    path: in a folder that exists.

  Yields:
    The file, open for writing and for going back in it.
  """
  for left in path.parent.glob(f'{path.name}.*.tmp'):
    # Another was quicker, or it is another's.
    with contextlib.suppress(OSError):
      if left.stat().st_mtime < time.time() - _ABANDONED:
        left.unlink()
  aside = path.with_name(f'{path.name}.{uuid.uuid4().hex}.tmp')
  try:
    with aside.open('wb') as file:
      yield file
      file.flush()
      os.fsync(file.fileno())  # First, or the name may stand for nothing.
    aside.replace(path)
  finally:
    aside.unlink(missing_ok=True)
