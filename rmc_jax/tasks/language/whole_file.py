"""Files written piece by piece that appear under their names whole or never."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
from typing import BinaryIO
import uuid


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[BinaryIO]:
  """A file to write, which takes the place of `path` when the block is left.

  When the block fails, `path` stays as it was. Several processes may write the
  same file at once; that of the last one stays, whole.

  Args:
    path: in a folder that exists.

  Yields:
    The file, open for writing and for going back in it.
  """
  aside = path.with_name(f'{path.name}.{uuid.uuid4().hex}.tmp')
  try:
    with aside.open('wb') as file:
      yield file
      file.flush()
      os.fsync(file.fileno())  # First, or the name may stand for nothing.
    aside.replace(path)
  finally:
    aside.unlink(missing_ok=True)
