"""Writes a small file whole or not at all, also where the power fails."""

import os
import pathlib


def write(path: pathlib.Path, content: bytes) -> None:
  """Replaces `path`, through a file beside it with .tmp behind its name.

  On return the content is on the disk, under its name.
  """
  aside = path.with_name(path.name + '.tmp')
  with aside.open('wb') as file:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())  # First, or the name may come to stand for nothing.
  aside.replace(path)
  folder = os.open(path.parent, os.O_RDONLY)
  try:
    os.fsync(folder)
  finally:
    os.close(folder)
