"""The manifest of a checkpoint: digests of its files and arrays.

Orbax restores a data file with a flipped byte silently, as wrong numbers, and
ignores missing marker files. So the last file of each step directory holds a
digest of every file and array, shapes, dtypes, package versions and devices.
Without it, the save is incomplete.

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
  """A step directory differs from what was saved; the message says where."""


class Incomplete(Damaged):
  """The step directory has no manifest: the save did not finish."""


def write(
  directory: pathlib.Path,
  step: int,
  leaves: dict[str, dict[str, str]],
  extra: Any = None,
) -> None:
  """Writes the manifest of a committed step, the last file of its directory.

  `leaves` maps paths of arrays in the state to their 'layout' and 'digest';
  `extra` is anything JSON can hold.
  """
  content = {
    'step': step,
    'extra': extra,
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
  """Reads the manifest without checking the files it lists.

  Raises:
    Incomplete: there is none.
    Damaged: its own digest is wrong.
  """
  try:
    content = (directory / FILE_NAME).read_bytes()
  except FileNotFoundError:
    raise Incomplete(f'the save is incomplete: no {FILE_NAME}') from None
  line = content.split(b'\n', 1)[0]
  if content != _with_digest(line):
    raise Damaged(f'{FILE_NAME} itself was changed')
  return json.loads(line)


def verify(directory: pathlib.Path) -> dict[str, Any]:
  """Reads the manifest and checks every file of the directory against it.

  Raises:
    Incomplete: there is no manifest.
    Damaged: a file was changed, removed or added.
  """
  manifest = read(directory)
  wanted, found = manifest['files'], _files(directory)
  if missing := sorted(wanted.keys() - found):
    raise Damaged(f'{missing[0]} is missing')
  if new := sorted(found - wanted.keys() - {FILE_NAME}):
    raise Damaged(f'{new[0]} was added')
  for path, digest in wanted.items():
    if _digest_of_file(directory / path) != digest:
      raise Damaged(f'{path} was changed')
  return manifest


def digest_of_array(array: np.ndarray) -> str:
  """Returns the SHA-256 digest of an array's bytes, in row-major order."""
  return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def versions() -> dict[str, str]:
  """Returns the versions of the packages that affect the bits computed."""
  return {name: importlib.metadata.version(name) for name in _PACKAGES}


def devices() -> dict[str, Any]:
  """Returns the devices of the job, which also affect the bits computed."""
  return {
    'platform': jax.default_backend(),
    'device_kind': jax.devices()[0].device_kind,
    'devices': jax.device_count(),
    'processes': jax.process_count(),
  }


def _files(directory: pathlib.Path) -> set[str]:
  """Returns the relative paths of all files below `directory`."""
  return {
    path.relative_to(directory).as_posix()
    for path in directory.rglob('*')
    if not path.is_dir()
  }


def _digest_of_file(path: pathlib.Path) -> str:
  with path.open('rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def _with_digest(line: bytes) -> bytes:
  return line + b'\n' + hashlib.sha256(line).hexdigest().encode() + b'\n'
