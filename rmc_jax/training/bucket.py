"""Keeps the workdir of a run in a bucket: gs://bucket/run or s3://bucket/run.

Objects cannot be appended to, renamed or locked. So the primary process works
in a temporary folder, and a thread copies files that change to the bucket:

- the manifest of a checkpoint after all other files, so a checkpoint in the
  bucket is complete, and no newer than the metrics, or has no manifest;
- removals last, the manifest of a checkpoint before its other files.

At the start, everything but incomplete checkpoints is copied from the bucket.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import os
import pathlib
import re
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
_CHECKPOINT = re.compile(r'(checkpoints/\d+)/')
_PERMANENT = re.compile('NOT_FOUND|PERMISSION_DENIED|UNAUTHENTICATED|INVALID')


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
  """
  with contextlib.ExitStack() as contexts:
    with _explained(workdir):
      store = _open(workdir)
      contexts.enter_context(lease.hold(store, workdir))
      mirror = Mirror(store, contexts.enter_context(_folder(workdir)))
      mirror.download()
    mirror.start()
    try:
      with _renamed(mirror.folder, workdir):
        yield mirror
    finally:
      mirror.close()
      print_line(f'{mirror.folder} was copied to {workdir}.')


@contextlib.contextmanager
def copied(workdir: str) -> Iterator[pathlib.Path]:
  """Yields a copy of a workdir in a bucket; files that change are copied back.

  For analyses. The run may be in progress.
  """
  with _folder(workdir) as folder:
    with _explained(workdir):
      mirror = Mirror(_open(workdir), folder)
      mirror.download(clean=False)
    with _renamed(folder, workdir):
      yield folder
    mirror.copy()
    print_line(f'{folder} was copied to {workdir}.')


class Mirror:
  """Copies the files of a folder to a bucket when they change."""

  def __init__(self, store: ts.KvStore, folder: pathlib.Path):
    self.folder = folder
    self._store = store
    # File -> modification time and size of the copy in the bucket.
    self._copies: dict[str, tuple[int, int]] = {}
    self._wake, self._stopping = threading.Event(), False
    self._thread = threading.Thread(target=self._run, daemon=True)
    self._error: Exception | None = None

  def download(self, *, clean: bool = True) -> None:
    """Copies everything but incomplete checkpoints from the bucket.

    With `clean`, these are removed: processes that were killed left them.
    """
    names = {key.decode() for key in self._store.list().result()}
    names.discard(lease.FILE_NAME)
    incomplete = {name for name in names if not _is_complete(name, names)}
    if clean:
      self._remove(incomplete)
    names -= incomplete
    reads = {name: self._store.read(name) for name in names}
    for name, read in reads.items():
      path = self.folder / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(read.result().value)
      self._copies[name] = _version(path)

  def start(self) -> None:
    """Starts the thread."""
    self._thread.start()

  def wake(self) -> None:
    """Copies at once, in the thread; raises the error of the last copy."""
    if self._error is not None:
      raise self._error
    self._wake.set()

  def close(self) -> None:
    """Stops the thread, then copies what is left."""
    self._stopping = True
    self._wake.set()
    self._thread.join()
    self.copy()

  def copy(self) -> None:
    """Copies new and changed files, then removes those that are gone."""
    local = self._local_files()
    changed = [
      name
      for name, version in local.items()
      if self._copies.get(name) != version
    ]
    is_manifest = manifest.FILE_NAME.__eq__
    for last in (False, True):
      names = [n for n in changed if is_manifest(n.rpartition('/')[2]) == last]
      contents = {name: (self.folder / name).read_bytes() for name in names}
      writes = [self._store.write(*item) for item in contents.items()]
      for name, write in zip(names, writes, strict=True):
        write.result()
        self._copies[name] = local[name]
    gone = self._copies.keys() - local.keys()
    self._remove(gone)
    for name in gone:
      del self._copies[name]

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
        logging.warning('Copying %s failed: %s', self.folder, error)
        self._error = error

  def _local_files(self) -> dict[str, tuple[int, int]]:
    """Returns the complete files and their versions."""
    versions = {}
    for path in self.folder.rglob('*'):
      relative = path.relative_to(self.folder)
      # Those of `rmc_jax.files` and, as folders, of Orbax.
      is_temporary = any(part.endswith('tmp') for part in relative.parts)
      with contextlib.suppress(FileNotFoundError):  # Removed meanwhile.
        if path.is_file() and not is_temporary:
          versions[relative.as_posix()] = _version(path)
    return {
      name: version
      for name, version in versions.items()
      if _is_complete(name, versions)
    }

  def _remove(self, names: Iterable[str]) -> None:
    """Removes objects, manifests first."""
    last = {name for name in names if not name.endswith(manifest.FILE_NAME)}
    for group in (set(names) - last, last):
      for write in [self._store.write(name, None) for name in group]:
        write.result()


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
  return ts.KvStore.open(spec).result()


@contextlib.contextmanager
def _explained(workdir: str) -> Iterator[None]:
  """Turns errors that the same command would meet again into sentences."""
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
def _folder(workdir: str) -> Iterator[pathlib.Path]:
  """Yields an empty temporary folder with the name of the run."""
  with tempfile.TemporaryDirectory(prefix='rmc_jax-') as parent:
    folder = pathlib.Path(parent, workdir.rstrip('/').rpartition('/')[2])
    folder.mkdir()
    yield folder


@contextlib.contextmanager
def _renamed(folder: pathlib.Path, workdir: str) -> Iterator[None]:
  """Names the workdir in errors about its folder, which users do not know."""
  try:
    yield
  except ValueError as error:
    kind = type(error) if isinstance(error, ConfigurationError) else ValueError
    raise kind(str(error).replace(str(folder), workdir)) from error


def _is_complete(name: str, names: Iterable[str]) -> bool:
  """Returns whether a file is not part of an incomplete checkpoint."""
  found = _CHECKPOINT.match(name)
  return found is None or f'{found[1]}/{manifest.FILE_NAME}' in names


def _version(path: pathlib.Path) -> tuple[int, int]:
  status = path.stat()
  return status.st_mtime_ns, status.st_size
