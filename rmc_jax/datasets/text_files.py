"""Text read from plain, gzip and zip files, piece by piece, with errors told.

A text of any size is never held whole: what is in memory is a piece or two.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import gzip
import io
import pathlib
from typing import cast
from typing import IO
from typing import NamedTuple
from typing import TextIO
import zipfile
import zlib

# Characters. A record of array_record is read whole, so not much more; each
# costs a read, so not much less.
PIECE = 1_000_000
_BLOCK = 1 << 16
_UTF_16 = b'\xff\xfe', b'\xfe\xff'  # what such a text begins with


class DatasetError(ValueError):
  """A corpus cannot be prepared or read; names the file and the remedy.

  Attributes:
    exit_code: for command lines: start again once somebody has looked.
  """

  exit_code = 77


class Source(NamedTuple):
  """Where a text lies.

  Attributes:
    path: a plain file, a .gz file, or a zip archive.
    member: the name inside the archive; '' where `path` is none.
    start: the first character that counts.
    stop: the first that does not any more; None for the end of the file.
    name: what to call the text; '' for the name of its file.
  """

  path: pathlib.Path
  member: str = ''
  start: int = 0
  stop: int | None = None
  name: str = ''

  @property
  def title(self) -> str:
    """The name of the text, without the .gz of its file."""
    return self.name or (self.member or self.path.name).removesuffix('.gz')

  def __str__(self) -> str:
    return f'{self.path}/{self.member}' if self.member else str(self.path)


def find(folder: pathlib.Path, names: Sequence[str]) -> Source:
  """The first file of `folder` that has one of `names`, or that and .gz.

  Raises:
    DatasetError: there is none.
  """
  for name in names:
    for path in (folder / name, folder / f'{name}.gz'):
      if path.is_file():
        return Source(path)
  raise DatasetError(
    f'{folder} has no {" or ".join(names)}, with or without .gz behind it. '
    f'It has: {contents(folder)}. Put the file there, or name the folder '
    'that has it.'
  )


def contents(folder: pathlib.Path) -> str:
  """The first few names in a folder, for a message."""
  names = sorted(path.name for path in folder.iterdir())
  if not names:
    return 'nothing'
  return ', '.join(names[:8]) + (', ...' if len(names) > 8 else '')


def check(source: Source) -> None:
  """Raises DatasetError where a source is missing or empty, before it is read.

  What is broken further in is found by `open_text`.
  """
  if not any(block.strip() for block in blocks(source)):
    since = f' from character {source.start:,} on' if source.start else ''
    raise DatasetError(
      f'{source} is empty{since}. Fetch the file again and prepare again.'
    )


@contextlib.contextmanager
def open_text(source: Source) -> Iterator[TextIO]:
  """The whole file as UTF-8; line ends of any system become '\\n'.

  Raises:
    DatasetError: in the body of the `with`: the file is missing, cut off,
      damaged or not UTF-8.
  """
  with contextlib.ExitStack() as stack:
    raw = None
    try:
      raw = stack.enter_context(_open_bytes(source, stack))
      # Some books begin with a byte order mark, which is no text.
      yield stack.enter_context(io.TextIOWrapper(raw, encoding='utf-8-sig'))
    except UnicodeDecodeError as error:
      wrong = error.object[error.start : error.start + 4]
      near = raw.tell() if raw is not None else 0
      packed = source.member or source.path.suffix == '.gz'
      # A packed file that was damaged shows here before its checksum is read.
      state = 'damaged or not UTF-8' if packed else 'not UTF-8'
      first = 'Fetch it again; if it is whole, unpack it. ' if packed else ''
      encoding = 'UTF-16' if wrong[:2] in _UTF_16 else 'LATIN1'
      raise DatasetError(
        f'{source} is {state}: it has {wrong!r} in its first {near:,} '
        f'bytes. {first}Convert the text, as with: iconv -f {encoding} -t '
        'UTF-8.'
      ) from error
    except FileNotFoundError as error:
      raise DatasetError(
        f'There is no {source}. Fetch the file and prepare again.'
      ) from error
    except (IsADirectoryError, PermissionError) as error:
      raise DatasetError(
        f'{source} cannot be opened: {error.strerror}. It must be a file '
        'that you may read.'
      ) from error
    except (EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
      raise DatasetError(
        f'{source} cannot be read to its end: {error}. It is cut off or '
        'damaged: delete it, fetch it again and prepare again.'
      ) from error


def _open_bytes(source: Source, stack: contextlib.ExitStack) -> IO[bytes]:
  if source.member:
    archive = stack.enter_context(zipfile.ZipFile(source.path))
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
  """The text from `source.start` to `source.stop` in small blocks, in order."""
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
  """Joins parts of one text and cuts it again where that does no harm.

  Args:
    parts: strings that joined are the text.
    size: characters of a piece, at most.

  Yields:
    Strings that joined are the text. A piece ends behind a line end; where a
    line is longer than a piece, behind a space; where there is none, anywhere.
  """
  held = ''
  for part in parts:
    held += part
    while len(held) > size:
      end = held.rfind('\n', 0, size) + 1 or held.rfind(' ', 0, size) + 1
      yield held[: end or size]
      held = held[end or size :]
  if held:
    yield held
