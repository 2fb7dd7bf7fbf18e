"""Prepares corpora with TFDS and reads their documents in order.

Prepared corpora are stored in `data_dir`/NAME, downloads in
`data_dir`/downloads. Needs the extra: pip install 'rmc_jax[data]'.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import io
import os
import pathlib
import shutil
import sys
from typing import Any
from typing import cast

from google.protobuf.json_format import ParseError
import tensorflow_datasets as tfds

from rmc_jax.datasets.babi.builder import Babi
from rmc_jax.datasets.gigaword.builder import GigaWord
from rmc_jax.datasets.gutenberg.builder import Gutenberg
from rmc_jax.datasets.progress import log
from rmc_jax.datasets.ptb.builder import PennTreebank
from rmc_jax.datasets.text8.builder import Text8
from rmc_jax.datasets.text_builder import COUNTS
from rmc_jax.datasets.text_builder import FILE_FORMAT
from rmc_jax.datasets.text_builder import TextBuilder
from rmc_jax.datasets.text_files import DatasetError
from rmc_jax.datasets.wikitext.builder import WikiText2
from rmc_jax.datasets.wikitext.builder import WikiText103

_BUILDERS: dict[str, tuple[type[TextBuilder], str | None]] = {
  'wikitext2': (WikiText2, None),
  'wikitext103': (WikiText103, None),
  'ptb': (PennTreebank, None),
  'text8': (Text8, None),
  'gutenberg': (Gutenberg, 'pg19'),
  'gutenberg/folder': (Gutenberg, 'folder'),
  'gigaword': (GigaWord, None),
  'babi/en': (Babi, 'en'),
  'babi/en-10k': (Babi, 'en-10k'),
}
NAMES = tuple(_BUILDERS)
# The style of `tasks.language.tokens.tokenize` for each corpus: the published
# tokens where the corpus is published as tokens, else our own rule for prose.
STYLES = {
  name: builder.STYLE
  for name, (builder, _) in _BUILDERS.items()
  if builder.STYLE
}


def prepare(
  name: str,
  *,
  data_dir: str | os.PathLike[str],
  manual_dir: str | os.PathLike[str] | None = None,
  download: bool = True,
) -> dict[str, int]:
  """Prepares a corpus for `documents`, unless it is prepared already.

  Shows its progress on standard error. An interrupted preparation leaves no
  partial corpus. Processes on one machine that prepare the same corpus wait for
  each other.

  Args:
    name: one of `NAMES`.
    data_dir: created if missing.
    manual_dir: the folder of the user's copy. None for
      `data_dir`/downloads/manual/NAME (with - for /) unless that is empty, else
      for a download.
    download: whether to download a corpus that is in no folder.

  Returns:
    Split -> number of records, each at most about 1 MB of a document.

  Raises:
    DatasetError: the name is unknown; files are missing, damaged, empty, not
      UTF-8 or not the whole corpus; the download failed or is not allowed;
      folders cannot be read or written, or the disk is full.
  """
  _check_name(name)
  parent = pathlib.Path(data_dir).expanduser()
  try:
    with _lock(parent, name):
      builder = _make_builder(name, parent)
      if _is_prepared(builder):
        log(f'{name} is prepared already, in {builder.data_dir}.')
        if manual_dir is not None:
          log(
            f'{manual_dir} was not read. To prepare from it, delete '
            f'{builder.data_dir} first.'
          )
      else:
        copy = _find_copy(builder, name, parent, manual_dir, download)
        log(f'Preparing {name} in {builder.data_dir}')
        _prepare(builder, copy)
  except (OSError, RuntimeError) as error:  # array_record raises RuntimeError.
    raise DatasetError(
      f'{name} could not be prepared in {parent}: {error}. No partial corpus '
      'is left. Make the folders readable and --data_dir writable, with room '
      'for the corpus, or name others.'
    ) from error
  splits = builder.info.splits
  return {split: info.num_examples for split, info in splits.items()}


def documents(
  name: str, split: str, *, data_dir: str | os.PathLike[str]
) -> Iterator[str]:
  """Reads the text of a split in order, record by record.

  A record has at most about a million characters: a document, or a piece of a
  longer one, cut after a line end (after a space in lines of that length).
  Joined, the pieces of a document are its text; documents are not marked.

  Raises:
    DatasetError: at once if the name or split is unknown or the corpus is not
      prepared; during iteration if a record is damaged.
  """
  builder = _find_prepared(name, data_dir)
  if split not in builder.SPLITS:
    raise DatasetError(
      f'{name} has no split {split!r}; it has {", ".join(builder.SPLITS)}.'
    )
  if split not in builder.counts:
    raise DatasetError(
      f'{name} was prepared without {split}: the folder had no '
      f'{builder.file_name(split)}. Delete {builder.data_dir} and prepare '
      'again with that file.'
    )
  return _read(builder, split)


def folder(name: str, *, data_dir: str | os.PathLike[str]) -> pathlib.Path:
  """The folder of a prepared corpus, which may also hold derived files.

  Raises:
    DatasetError: the name is unknown, or the corpus is not prepared.
  """
  return pathlib.Path(_find_prepared(name, data_dir).data_path)


def summary(name: str, *, data_dir: str | os.PathLike[str]) -> str:
  """A table of the splits of a prepared corpus, its folder and its licence.

  Tokens are words between white space, and one for the end of every line.

  Raises:
    DatasetError: the name is unknown, or the corpus is not prepared.
  """
  builder = _find_prepared(name, data_dir)
  info = builder.info
  lines = [f'{name} {info.version} in {builder.data_dir}']
  columns = (*COUNTS, 'records')
  width = max(6, *map(len, info.splits))
  lines.append(f'  {"split":{width}}' + ''.join(f'{c:>16}' for c in columns))
  for split, records in info.splits.items():
    counts = {**builder.counts[split], 'records': records.num_examples}
    numbers = ''.join(f'{counts[c]:>16,}' for c in columns)
    lines.append(f'  {split:{width}}{numbers}')
  lines += [f'licence: {builder.LICENSE}', f'cite: {builder.CITATION}']
  return '\n'.join(lines)


def _check_name(name: str) -> None:
  if name not in NAMES:
    raise DatasetError(f'There is no corpus {name!r}; choose one of {NAMES}.')


@contextlib.contextmanager
def _lock(parent: pathlib.Path, name: str) -> Iterator[None]:
  """Excludes other processes; the kernel frees the lock if this one dies."""
  parent.mkdir(parents=True, exist_ok=True)
  with (parent / f'{name.replace("/", "-")}.lock').open('a') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      log(f'Another process prepares {name} in {parent}: waiting for it.')
      fcntl.flock(file, fcntl.LOCK_EX)
    yield


def _make_builder(name: str, parent: pathlib.Path) -> TextBuilder:
  builder, config = _BUILDERS[name]
  try:
    return builder(data_dir=parent, config=config)
  except ParseError as error:
    raise DatasetError(
      f'The metadata of {name} is damaged, in {parent / name}: {error}. Delete '
      'that folder and prepare again.'
    ) from error


def _is_prepared(builder: TextBuilder) -> bool:
  if builder.info.initialized and builder.counts:
    return True
  if builder.data_path.exists():
    raise DatasetError(
      f'{builder.data_dir} is incomplete. Delete that folder and prepare again.'
    )
  return False


def _find_copy(
  builder: TextBuilder,
  name: str,
  parent: pathlib.Path,
  manual_dir: str | os.PathLike[str] | None,
  download: bool,
) -> pathlib.Path:
  """The folder of the user's files; empty or absent for a download."""
  if manual_dir is None:
    folder = parent / 'downloads' / 'manual' / name.replace('/', '-')
    reason = (
      'was not to be downloaded'
      if builder.can_download
      else f'cannot be downloaded ({builder.LICENSE})'
    )
    problem = (
      f'{name} {reason}, and {folder} has no copy. Put your copy there, or '
      'name its folder (--manual_dir).'
    )
  else:
    download = False
    folder = pathlib.Path(manual_dir).expanduser()
    problem = f'{folder} is not a folder, or is empty.'
  has_files = folder.is_dir() and any(folder.iterdir())
  if not has_files and not (download and builder.can_download):
    raise DatasetError(f'{problem} {builder.MANUAL_DOWNLOAD_INSTRUCTIONS}')
  return folder


def _prepare(builder: TextBuilder, copy: pathlib.Path) -> None:
  # Left by killed processes; the lock excludes live ones.
  for partial in builder.data_path.parent.glob('incomplete.*'):
    shutil.rmtree(partial)
  if not copy.is_dir():
    log('Downloading it; --manual_dir=FOLDER takes your own copy instead.')
  # TFDS prints to the standard output that the size is unknown.
  with contextlib.redirect_stdout(io.StringIO()):
    builder.download_and_prepare(
      file_format=FILE_FORMAT,
      download_config=tfds.download.DownloadConfig(manual_dir=copy),
    )


def _find_prepared(name: str, data_dir: str | os.PathLike[str]) -> TextBuilder:
  _check_name(name)
  builder = _make_builder(name, pathlib.Path(data_dir).expanduser())
  if not _is_prepared(builder):
    raise DatasetError(
      f'{name} is not prepared in {data_dir}. First: {sys.executable} -m '
      f'rmc_jax.datasets.prepare {name} --data_dir={data_dir}'
    )
  return builder


def _read(builder: TextBuilder, split: str) -> Iterator[str]:
  source = cast(Any, builder).as_data_source(split)
  for index in range(len(source)):
    try:
      text = source[index]['text']
    except Exception as error:  # array_record has no error class of its own.
      raise DatasetError(
        f'Record {index} of {len(source)} of {split} in {builder.data_dir} '
        f'cannot be read: {error}. Delete that folder and prepare again.'
      ) from error
    yield text.decode()
