"""Keeps the workdir of a run in a bucket: gs://bucket/run or s3://bucket/run.

Objects cannot be appended to, renamed or locked. So the primary process works
in a temporary folder, and a thread copies files that change to the bucket:

- the manifest of a checkpoint after all other files, so a checkpoint in the
  bucket is complete, and no newer than the metrics, or has no manifest;
- removals last, the manifest of a checkpoint before its other files. Only files
  of checkpoints are removed, while there is a complete one.

At the start, everything but incomplete checkpoints is copied from the bucket.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import os
import pathlib
import re
import shutil
import tempfile
import threading

from absl import logging
import tensorstore as ts

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import lease
from rmc_jax.training import manifest
from rmc_jax.training.progress import print_line

SCHEMES = ('gs', 's3')
_SECONDS_BETWEEN_COPIES = 10.0
_BYTES_IN_FLIGHT = 256 * 2**20
_READS_IN_FLIGHT = 32
_CHECKPOINTS = 'checkpoints/'
_STEP = re.compile(r'checkpoints/\d+/')
_PERMANENT = re.compile('NOT_FOUND|PERMISSION_DENIED|UNAUTHENTICATED|INVALID')


class CopyFailed(RuntimeError):
  """Files could not be copied to the bucket."""


def is_bucket(workdir: str | os.PathLike) -> bool:
  """Returns whether `workdir` is a URL of SCHEMES, and not a folder.

  Raises:
    ConfigurationError: it is a URL of another scheme, or a path made of a URL.
  """
  found = re.match(r'([a-z][a-z0-9+.-]+):/(/[^/]+/[^/])?', str(workdir))
  if found is None:
    return False
  if found[1] not in SCHEMES or found[2] is None:
    raise ConfigurationError(
      f'The workdir must be a folder, gs://BUCKET/RUN or s3://BUCKET/RUN, as a '
      f'string. Got: {str(workdir)!r}. Buckets elsewhere can be mounted.'
    )
  return True


@contextlib.contextmanager
def mirrored(workdir: str) -> Iterator['Mirror']:
  """Locks a workdir in a bucket; yields a mirror that copies until the end.

  Raises:
    ConfigurationError: another process is training there, or the bucket
      cannot be used.
    CopyFailed: the last files were not copied. Their folder, which the message
      names, is kept. Only logged if another error ends the run.
  """
  with contextlib.ExitStack() as contexts:
    with _configuration_errors(workdir):
      # Of its own, so that the lock does not wait for large files.
      contexts.enter_context(lease.acquire_lease(_open(workdir), workdir))
      mirror = Mirror(_open(workdir), _temporary_folder(workdir), workdir)
      with mirror.removed_on_error():
        mirror.download()
    mirror.start()
    try:
      with _replace_folder_in_errors(mirror.folder, workdir):
        yield mirror
    except BaseException:
      try:
        mirror.close()
      except CopyFailed as error:
        logging.error('%s', error)
      raise
    mirror.close()
    print_line(f'{mirror.folder} was copied to {workdir}.')


@contextlib.contextmanager
def as_folder(
  workdir: str, *, checkpoints: bool = False
) -> Iterator[pathlib.Path]:
  """Yields the folder of a workdir, to read a run that may be in progress.

  For a bucket it is a copy, with or without `checkpoints`; files that change
  are copied back.
  """
  if not is_bucket(workdir):
    yield pathlib.Path(workdir)
    return
  mirror = Mirror(_open(workdir), _temporary_folder(workdir), workdir)
  with mirror.removed_on_error():
    with _configuration_errors(workdir):
      mirror.download(clean=False, checkpoints=checkpoints)
    with _replace_folder_in_errors(mirror.folder, workdir):
      yield mirror.folder
  if mirror.finish():
    print_line(f'{mirror.folder} was copied to {workdir}.')


class Mirror:
  """Copies the files of a folder to a bucket when they change."""

  def __init__(self, store: ts.KvStore, folder: pathlib.Path, workdir: str):
    self.folder = folder
    self._store, self._workdir = store, workdir
    # File -> modification time and size of the copy in the bucket.
    self._copies: dict[str, tuple[int, int]] = {}
    self._wake, self._stopping = threading.Event(), False
    self._thread = threading.Thread(target=self._run, daemon=True)
    self._error: Exception | None = None

  def download(self, *, clean: bool = True, checkpoints: bool = True) -> None:
    """Copies everything but incomplete checkpoints from the bucket.

    With `clean`, these are removed: processes that were killed left them.
    Without `checkpoints`, no checkpoint is copied.
    """
    names = {key.decode() for key in self._store.list().result()}
    # Tools make empty objects with such names to show folders.
    names = {name for name in names if name and not name.endswith('/')}
    names.discard(lease.FILE_NAME)
    incomplete = {name for name in names if not _is_complete(name, names)}
    if clean:
      self._remove(incomplete)
    wanted = [
      name
      for name in sorted(names - incomplete)
      if checkpoints or not name.startswith(_CHECKPOINTS)
    ]
    removed = set()
    for start in range(0, len(wanted), _READS_IN_FLIGHT):
      group = wanted[start : start + _READS_IN_FLIGHT]
      reads = [self._store.read(name) for name in group]
      for name, read in zip(group, reads, strict=True):
        result = read.result()
        if result.state != 'value':  # The run has removed it meanwhile.
          removed.add(name)
          continue
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(result.value)
        self._copies[name] = _version(path)
    self._forget({step[0] for name in removed if (step := _STEP.match(name))})

  @contextlib.contextmanager
  def removed_on_error(self) -> Iterator[None]:
    """Removes the folder if the block raises: it holds nothing new."""
    try:
      yield
    except BaseException:
      shutil.rmtree(self.folder.parent)
      raise

  def start(self) -> None:
    """Starts the thread."""
    self._thread.start()

  def wake(self) -> None:
    """Copies at once, in the thread; CopyFailed if the last copy failed."""
    if self._error is not None:
      raise CopyFailed(
        f'Copying to {self._workdir} failed: {self._error}.'
      ) from self._error
    self._wake.set()

  def close(self) -> None:
    """Stops the thread, then finishes."""
    self._stopping = True
    self._wake.set()
    self._thread.join()
    self.finish()

  def finish(self) -> bool:
    """Like `copy`, and removes the folder; CopyFailed keeps it."""
    try:
      has_copied = self.copy()
    except Exception as error:
      raise CopyFailed(
        f'The last files of {self._workdir} could not be copied: {error}. They '
        f'are in {self.folder}. Copy that folder there, without its incomplete '
        'checkpoints, before the next start.'
      ) from error
    shutil.rmtree(self.folder.parent)
    return has_copied

  def copy(self) -> bool:
    """Copies new and changed files, then removes those that are gone.

    Returns whether there was a file to copy.
    """
    local = self._local_files()
    changed = {
      name
      for name, version in local.items()
      if self._copies.get(name) != version
    }
    manifests = {name for name in changed if name.endswith(manifest.FILE_NAME)}
    self._write(changed - manifests, local)
    self._write(manifests, local)
    if any(_is_manifest(name) for name in local):
      gone = self._copies.keys() - local.keys()
      self._remove({name for name in gone if name.startswith(_CHECKPOINTS)})
    return bool(changed)

  def _run(self) -> None:
    while not self._stopping:
      self._wake.wait(_SECONDS_BETWEEN_COPIES)
      self._wake.clear()
      try:
        self.copy()
        self._error = None
      except FileNotFoundError:
        pass  # Removed or replaced meanwhile; the next copy sees the new files.
      except Exception as error:
        logging.warning('Copying to %s failed: %s', self._workdir, error)
        self._error = error

  def _local_files(self) -> dict[str, tuple[int, int]]:
    """Returns the complete files and their versions."""
    # Manifests first: the metrics found later are not older than them.
    manifests = self._manifests()
    versions = {}
    for path in self.folder.rglob('*'):
      relative = path.relative_to(self.folder)
      # Those of `rmc_jax.files` and, as folders, of Orbax.
      is_temporary = any(part.endswith('tmp') for part in relative.parts)
      with contextlib.suppress(FileNotFoundError):  # Removed meanwhile.
        if path.is_file() and not is_temporary:
          versions[relative.as_posix()] = _version(path)
    # A removal starts with the manifest, so these had all of their files.
    manifests &= self._manifests()
    return {
      name: version
      for name, version in versions.items()
      if _is_complete(name, manifests)
    }

  def _manifests(self) -> set[str]:
    return {
      path.relative_to(self.folder).as_posix()
      for path in self.folder.glob(f'{_CHECKPOINTS}*/{manifest.FILE_NAME}')
    }

  def _write(
    self, names: Iterable[str], versions: dict[str, tuple[int, int]]
  ) -> None:
    """Writes files to the bucket, several at once."""
    group: dict[str, bytes] = {}
    for name in sorted(names):
      group[name] = (self.folder / name).read_bytes()
      if sum(map(len, group.values())) > _BYTES_IN_FLIGHT:
        self._write_group(group, versions)
        group = {}
    self._write_group(group, versions)

  def _write_group(
    self, group: dict[str, bytes], versions: dict[str, tuple[int, int]]
  ) -> None:
    writes = {name: self._store.write(name, group[name]) for name in group}
    errors = []
    for name, write in writes.items():
      try:
        write.result()
        self._copies[name] = versions[name]
      except Exception as error:
        errors.append(error)
    # Only when all have ended: a late write would replace a newer one.
    if errors:
      raise errors[0]

  def _forget(self, steps: Iterable[str]) -> None:
    """Removes the local files of checkpoints, which another process removes."""
    for step in steps:
      shutil.rmtree(self.folder / step, ignore_errors=True)
      for name in [name for name in self._copies if name.startswith(step)]:
        del self._copies[name]

  def _remove(self, names: Iterable[str]) -> None:
    """Removes objects, manifests first."""
    last = {name for name in names if not name.endswith(manifest.FILE_NAME)}
    for group in (set(names) - last, last):
      for name, write in [(n, self._store.write(n, None)) for n in group]:
        write.result()
        self._copies.pop(name, None)


def _open(workdir: str) -> ts.KvStore:
  """Returns the objects below a URL, as key-value store."""
  scheme, _, rest = workdir.partition('://')
  bucket, _, path = rest.partition('/')
  spec = {
    'driver': {'gs': 'gcs', 's3': 's3'}[scheme],
    'bucket': bucket,
    'path': f'{path.rstrip("/")}/',
  }
  # As other clients of S3 read it, for services that are compatible with it.
  if scheme == 's3' and (endpoint := os.environ.get('AWS_ENDPOINT_URL')):
    region = os.environ.get('AWS_REGION', 'us-east-1')
    spec |= {'endpoint': endpoint, 'aws_region': region}
  # A new context has a queue of requests of its own.
  return ts.KvStore.open(spec, context=ts.Context()).result()


def _temporary_folder(workdir: str) -> pathlib.Path:
  """Returns a new folder with the name of the run, in one of its own."""
  parent = tempfile.mkdtemp(prefix='rmc_jax-')
  folder = pathlib.Path(parent, workdir.rstrip('/').rpartition('/')[2])
  folder.mkdir()
  return folder


@contextlib.contextmanager
def _configuration_errors(workdir: str) -> Iterator[None]:
  """Raises ConfigurationError for errors that a restart would meet again."""
  try:
    yield
  except Exception as error:
    if not _PERMANENT.search(str(error)):
      raise
    raise ConfigurationError(
      f'{workdir} cannot be used: {error}. Check the name of the bucket, the '
      'credentials of this machine and their rights to list, read and write '
      'objects.'
    ) from error


@contextlib.contextmanager
def _replace_folder_in_errors(
  folder: pathlib.Path, workdir: str
) -> Iterator[None]:
  """Names the workdir in errors about its folder, which users do not know."""
  try:
    yield
  except ValueError as error:
    kind = type(error) if isinstance(error, ConfigurationError) else ValueError
    raise kind(str(error).replace(str(folder), workdir)) from error


def _is_complete(name: str, names: Collection[str]) -> bool:
  """Returns whether a file is not part of an incomplete checkpoint."""
  found = _STEP.match(name)
  return found is None or f'{found[0]}{manifest.FILE_NAME}' in names


def _is_manifest(name: str) -> bool:
  found = _STEP.match(name)
  return found is not None and name == f'{found[0]}{manifest.FILE_NAME}'


def _version(path: pathlib.Path) -> tuple[int, int]:
  status = path.stat()
  return status.st_mtime_ns, status.st_size
