"""Reads text from plain, gzip and zip files, a piece at a time.

However large the text, only a piece or two are in memory.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import gzip
import io
import itertools
import pathlib
from typing import cast
from typing import IO
from typing import NamedTuple
from typing import TextIO
import zipfile
import zlib

from rmc_jax.errors import ConfigurationError

# Characters per record. Records are read whole, so not much more; every record
# costs a read, so not much less.
PIECE = 1_000_000
_BLOCK = 1 << 16
_UTF_16 = b'\xff\xfe', b'\xfe\xff'  # byte order marks


class DatasetError(ConfigurationError):
  """A corpus cannot be prepared or read; names the file and the remedy."""


class Source(NamedTuple):
  """The location of a text."""

  path: pathlib.Path  # a plain file, a .gz file, or a zip archive
  member: str = ''  # the name inside the archive
  start: int = 0  # the first character
  stop: int | None = None  # the character after the last; None: all
  name: str = ''  # of the text; '' for that of its file

  @property
  def title(self) -> str:
    """The name of the text, without the .gz of its file."""
    return self.name or (self.member or self.path.name).removesuffix('.gz')

  def __str__(self) -> str:
    return f'{self.path}/{self.member}' if self.member else str(self.path)


def find(folder: pathlib.Path, names: Sequence[str]) -> Source:
  """Finds the first of `names` in `folder`, plain or with a final .gz.

  Raises:
    DatasetError: none of them exists.
  """
  for name in names:
    for path in (folder / name, folder / f'{name}.gz'):
      if path.is_file():
        return Source(path)
  raise DatasetError(
    f'{folder} has no {" or ".join(names)}, with or without a final .gz. '
    f'It has: {contents(folder)}. Put the file there, or name the folder '
    'that has it.'
  )


def contents(folder: pathlib.Path) -> str:
  """The first few names in a folder, for messages."""
  names = sorted(path.name for path in folder.iterdir())
  if not names:
    return 'nothing'
  return ', '.join(names[:8]) + (', ...' if len(names) > 8 else '')


def check(source: Source) -> None:
  """Raises DatasetError if a source is missing or empty.

  `open_text` finds damage further into the file.
  """
  if not any(block.strip() for block in blocks(source)):
    where = f' from character {source.start:,} on' if source.start else ''
    raise DatasetError(
      f'{source} is empty{where}. Fetch the file again and prepare again.'
    )


def check_distinct(sources: Sequence[Source], kind: str) -> None:
  """Raises DatasetError if two sources, each a `kind`, have the same title."""
  ordered = sorted(sources, key=lambda source: source.title)
  for one, other in itertools.pairwise(ordered):
    if one.title == other.title:
      raise DatasetError(f'{one} and {other} are the same {kind}. Remove one.')


@contextlib.contextmanager
def open_text(source: Source) -> Iterator[TextIO]:
  """Opens the whole file as UTF-8; line ends of any system become '\\n'.

  Raises:
    DatasetError: inside the `with`: the file is missing, truncated, damaged or
      not UTF-8.
  """
  with contextlib.ExitStack() as stack:
    raw = None
    try:
      raw = stack.enter_context(_open_bytes(source))
      # Some books begin with a byte order mark.
      yield stack.enter_context(io.TextIOWrapper(raw, encoding='utf-8-sig'))
    except UnicodeDecodeError as error:
      wrong = error.object[error.start : error.start + 4]
      near = raw.tell() if raw is not None else 0
      packed = source.member or source.path.suffix == '.gz'
      # Damage to a packed file shows here before its checksum is read.
      state = 'damaged or not UTF-8' if packed else 'not UTF-8'
      first = 'Fetch it again; if it is intact, unpack it. ' if packed else ''
      encoding = 'UTF-16' if wrong[:2] in _UTF_16 else 'LATIN1'
      raise DatasetError(
        f'{source} is {state}: it has {wrong!r} in its first {near:,} '
        f'bytes. {first}Convert the text, as with: iconv -f {encoding} -t '
        'UTF-8.'
      ) from error
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
      raise DatasetError(
        f'{source} cannot be opened: {error.strerror}. Put a readable file '
        'there and prepare again.'
      ) from error
    except (EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
      raise DatasetError(
        f'{source} cannot be read to its end: {error}. It is truncated or '
        'damaged: delete it, fetch it again and prepare again.'
      ) from error


def _open_bytes(source: Source) -> IO[bytes]:
  if source.member:
    # The open member keeps the archive's file open.
    with zipfile.ZipFile(source.path) as archive:
      if source.member not in archive.namelist():
        raise DatasetError(
          f'{source.path} has no {source.member}. It has: '
          f'{", ".join(archive.namelist()[:8])}. Fetch the archive again.'
        )
      return archive.open(source.member)
  if source.path.suffix == '.gz':
    return cast(IO[bytes], gzip.open(source.path))
  return source.path.open('rb')


def blocks(source: Source) -> Iterator[str]:
  """Yields the text from `source.start` to `source.stop` in small blocks."""
  position = 0
  with open_text(source) as file:
    while source.stop is None or position < source.stop:
      block = file.read(_BLOCK)
      if not block:
        return
      stop = None if source.stop is None else source.stop - position
      yield block[max(0, source.start - position) : stop]
      position += len(block)


def pieces(parts: Iterable[str], size: int = PIECE) -> Iterator[str]:
  """Cuts the text of `parts` into pieces of at most `size` characters.

  A piece ends after a line end; if a line is longer than a piece, after a
  space; if it has none, anywhere.
  """
  buffer = ''
  for part in parts:
    buffer += part
    while len(buffer) > size:
      end = buffer.rfind('\n', 0, size) + 1 or buffer.rfind(' ', 0, size) + 1
      yield buffer[: end or size]
      buffer = buffer[end or size :]
  if buffer:
    yield buffer
