"""The manifest of a checkpoint: what was saved, and whether it still is that.

Orbax restores a data file in which a byte has flipped without a word and gives
back wrong numbers, and does not miss its own marker files. So each checkpoint
gets one more file, written last of all: a digest of every file and of every
array, the shapes and dtypes, and what made them. A step directory without this
file is a save that was cut short.

The file is one line of JSON, then the SHA-256 digest of that line.
"""

import hashlib
import importlib.metadata
import json
import pathlib
from typing import Any

import jax
import numpy as np

from rmc_jax import files

FILE_NAME = 'manifest.json'
_PACKAGES = ('jax', 'jaxlib', 'dm-haiku', 'optax', 'orbax-checkpoint', 'numpy')


class Damaged(Exception):
  """A step directory is not what was saved; the message says why."""


class CutShort(Damaged):
  """It has no manifest: the save ended before it was whole."""


def write(
  directory: pathlib.Path, step: int, leaves: dict[str, dict[str, str]]
) -> None:
  """Writes the manifest of a committed step as the directory's last file.

  Args:
    directory: the step directory; every file in it is digested.
    step: the step it holds.
    leaves: path of an array in the state -> its 'layout' and 'digest'.
  """
  content = {
    'step': step,
    'leaves': leaves,
    'files': {
      path: _digest_of_file(directory / path) for path in _files(directory)
    },
    'versions': versions(),
    'devices': devices(),
  }
  line = json.dumps(content, sort_keys=True).encode()
  files.atomic_write(directory / FILE_NAME, _with_digest(line))


def read(directory: pathlib.Path) -> dict[str, Any]:
  """Reads the manifest alone.

  Raises:
    CutShort: there is none.
    Damaged: it is not what was written.
  """
  try:
    content = (directory / FILE_NAME).read_bytes()
  except FileNotFoundError:
    raise CutShort(f'the save was cut short: no {FILE_NAME}') from None
  line = content.split(b'\n', 1)[0]
  if content != _with_digest(line):
    raise Damaged(f'{FILE_NAME} itself was changed')
  return json.loads(line)


def verify(directory: pathlib.Path) -> dict[str, Any]:
  """Reads the manifest and checks every file of the directory against it.

  Raises:
    CutShort: there is no manifest.
    Damaged: a file was changed, is missing or is new; the message names it.
  """
  manifest = read(directory)
  found = [path for path in _files(directory) if path != FILE_NAME]
  if missing := sorted(set(manifest['files']) - set(found)):
    raise Damaged(f'{missing[0]} is missing')
  if new := sorted(set(found) - set(manifest['files'])):
    raise Damaged(f'{new[0]} was added')
  for path, digest in manifest['files'].items():
    if _digest_of_file(directory / path) != digest:
      raise Damaged(f'{path} was changed')
  return manifest


def digest_of_array(array: np.ndarray) -> str:
  """The SHA-256 digest of an array's bytes, in row-major order."""
  return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def versions() -> dict[str, str]:
  """The versions of the packages that decide what bits come out."""
  return {name: importlib.metadata.version(name) for name in _PACKAGES}


def devices() -> dict[str, Any]:
  """The devices of the job, which also decide what bits come out."""
  return {
    'platform': jax.default_backend(),
    'device_kind': jax.devices()[0].device_kind,
    'devices': jax.device_count(),
    'processes': jax.process_count(),
  }


def _files(directory: pathlib.Path) -> list[str]:
  """Every file below `directory`, as relative paths in a fixed order."""
  return sorted(
    path.relative_to(directory).as_posix()
    for path in directory.rglob('*')
    if not path.is_dir()
  )


def _digest_of_file(path: pathlib.Path) -> str:
  with path.open('rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def _with_digest(line: bytes) -> bytes:
  return line + b'\n' + hashlib.sha256(line).hexdigest().encode() + b'\n'
