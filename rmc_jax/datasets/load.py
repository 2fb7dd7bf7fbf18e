"""The door to TFDS: prepares corpora and reads them back, in order.

What has been prepared lies in `data_dir`/NAME; downloads in
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

from rmc_jax.datasets.gigaword.builder import GigaWord
from rmc_jax.datasets.gutenberg.builder import Gutenberg
from rmc_jax.datasets.progress import say
from rmc_jax.datasets.ptb.builder import PennTreebank
from rmc_jax.datasets.text8.builder import Text8
from rmc_jax.datasets.text_builder import COUNTS
from rmc_jax.datasets.text_builder import FILE_FORMAT
from rmc_jax.datasets.text_builder import SPLITS
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
}
NAMES = tuple(_BUILDERS)
# How `tasks.language.tokens.tokenize` cuts the text of each: as published where
# the text is published cut into words, else by our own rule for prose.
STYLES = {
  'wikitext2': 'lines',
  'wikitext103': 'lines',
  'ptb': 'lines',
  'text8': 'whitespace',
  'gutenberg': 'words',
  'gutenberg/folder': 'words',
  'gigaword': 'word_lines',
}


def prepare(
  name: str,
  *,
  data_dir: str | os.PathLike[str],
  manual_dir: str | os.PathLike[str] | None = None,
  download: bool = True,
) -> dict[str, int]:
  """Makes a corpus ready for `documents`; nothing to do the second time.

  Shows its progress on standard error. What is interrupted leaves nothing that
  could be taken for a corpus. Of several processes that prepare the same one on
  one machine, the others wait for the first.

  Args:
    name: one of `NAMES`.
    data_dir: the folder for prepared corpora; made if missing.
    manual_dir: the folder with the user's copy of the corpus. None for
      `data_dir`/downloads/manual/NAME (with - for /) where there is something
      in it, and for a download otherwise.
    download: whether to download what is not in a folder.

  Returns:
    Split -> number of records, each at most about 1 MB of a document.

  Raises:
    DatasetError: an unknown name; files that are missing, damaged, empty, not
      UTF-8 or not the whole corpus; a download that failed or is not allowed;
      folders that cannot be read or written, or a full disk.
  """
  _check_name(name)
  parent = pathlib.Path(data_dir).expanduser()
  try:
    with _hold(parent, name):
      builder = _builder(name, parent)
      if _is_prepared(builder):
        say(f'{name} is prepared already, in {builder.data_dir}.')
        if manual_dir is not None:
          say(
            f'{manual_dir} was not read. To prepare from it, delete '
            f'{builder.data_dir} first.'
          )
      else:
        _prepare(builder, name, parent, manual_dir, download)
  except (OSError, RuntimeError) as error:  # array_record has RuntimeError.
    raise DatasetError(
      f'{name} could not be prepared in {parent}: {error}. Nothing half made '
      'is left. Make the folders readable and --data_dir writable, with room '
      'for the corpus, or name others.'
    ) from error
  splits = builder.info.splits
  return {split: info.num_examples for split, info in splits.items()}


def documents(
  name: str, split: str, *, data_dir: str | os.PathLike[str]
) -> Iterator[str]:
  """The text of a split, in order, one record after the other.

  `tasks.language.tokens` makes words of it, with the style of `STYLES`. Where a
  document ends is not told.

  Args:
    name: one of `NAMES`.
    split: 'train', 'valid' or 'test'.
    data_dir: as for `prepare`.

  Returns:
    Strings of at most about a million characters: documents, or the pieces of
    longer ones, cut behind a line end (behind a space in lines of that length).
    Pieces keep their line ends, so joined they are the document again.

  Raises:
    DatasetError: at once: an unknown name or split, or nothing is prepared; on
      the way: a record is damaged.
  """
  builder = _prepared(name, data_dir)
  if split not in SPLITS:
    raise DatasetError(f'{name} has no split {split!r}; it has {SPLITS}.')
  return _read(builder, split)


def folder(name: str, *, data_dir: str | os.PathLike[str]) -> pathlib.Path:
  """Where a prepared corpus lies; what is made of it may lie there too.

  It is removed with the corpus, and so never outlives what it was made of.

  Raises:
    DatasetError: an unknown name, or nothing is prepared.
  """
  return pathlib.Path(_prepared(name, data_dir).data_path)


def summary(name: str, *, data_dir: str | os.PathLike[str]) -> str:
  """What has been prepared: a table of splits, the place and the licence.

  Tokens are words between white space, and one for the end of every line.

  Raises:
    DatasetError: an unknown name, or nothing is prepared.
  """
  builder = _prepared(name, data_dir)
  info = builder.info
  lines = [f'{name} {info.version} in {builder.data_dir}']
  columns = (*COUNTS, 'records')
  lines.append(f'  {"split":6}' + ''.join(f'{c:>16}' for c in columns))
  for split, records in info.splits.items():
    counts = {**builder.counts[split], 'records': records.num_examples}
    lines.append(f'  {split:6}' + ''.join(f'{counts[c]:>16,}' for c in columns))
  lines.append(f'licence: {builder.LICENSE}')
  lines.append(f'cite: {builder.CITATION}')
  return '\n'.join(lines)


def _builder(name: str, parent: pathlib.Path) -> TextBuilder:
  builder, config = _BUILDERS[name]
  try:
    return builder(data_dir=parent, config=config)
  except ParseError as error:
    raise DatasetError(
      f'What says how {name} was prepared is damaged, in {parent / name}: '
      f'{error}. Delete that folder and prepare again.'
    ) from error


def _is_prepared(builder: TextBuilder) -> bool:
  """Whether all is there.

  Raises:
    DatasetError: some of it is, which this program never leaves behind.
  """
  if builder.info.initialized and set(builder.counts) == set(SPLITS):
    return True
  if builder.data_path.exists():
    raise DatasetError(
      f'{builder.data_dir} is incomplete. Delete that folder and prepare again.'
    )
  return False


def _prepare(
  builder: TextBuilder,
  name: str,
  parent: pathlib.Path,
  manual_dir: str | os.PathLike[str] | None,
  download: bool,
) -> None:
  # Left by a process that was killed: nobody else is here, by the lock.
  for left in builder.data_path.parent.glob('incomplete.*'):
    shutil.rmtree(left)
  manual = _manual_folder(builder, name, parent, manual_dir, download)
  say(f'Preparing {name} in {builder.data_dir}')
  if not manual.is_dir():
    say('Downloading it; --manual_dir=FOLDER takes a copy of yours instead.')
  # TFDS prints what it cannot know, the size, to the standard output.
  with contextlib.redirect_stdout(io.StringIO()):
    builder.download_and_prepare(
      file_format=FILE_FORMAT,
      download_config=tfds.download.DownloadConfig(manual_dir=manual),
    )


def _check_name(name: str) -> None:
  if name not in _BUILDERS:
    raise DatasetError(f'There is no corpus {name!r}; choose of {NAMES}.')


def _prepared(name: str, data_dir: str | os.PathLike[str]) -> TextBuilder:
  _check_name(name)
  builder = _builder(name, pathlib.Path(data_dir).expanduser())
  if not _is_prepared(builder):
    raise DatasetError(
      f'{name} is not prepared in {data_dir}. First: {sys.executable} -m '
      f'rmc_jax.datasets.prepare {name} --data_dir={data_dir}'
    )
  return builder


@contextlib.contextmanager
def _hold(parent: pathlib.Path, name: str) -> Iterator[None]:
  """One process at a time; the system frees the lock however it ends."""
  parent.mkdir(parents=True, exist_ok=True)
  with (parent / f'{name.replace("/", "-")}.lock').open('a') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      say(f'Another process prepares {name} in {parent}: waiting for its end.')
      fcntl.flock(file, fcntl.LOCK_EX)
    yield


def _manual_folder(
  builder: TextBuilder,
  name: str,
  parent: pathlib.Path,
  manual_dir: str | os.PathLike[str] | None,
  download: bool,
) -> pathlib.Path:
  """Where the user's files are; nothing there means: to be downloaded."""
  needed = builder.MANUAL_DOWNLOAD_INSTRUCTIONS
  if manual_dir is not None:
    given = pathlib.Path(manual_dir).expanduser()
    if not given.is_dir() or not any(given.iterdir()):
      raise DatasetError(f'{given} is no folder, or is empty. {needed}')
    return given
  default = parent / 'downloads' / 'manual' / name.replace('/', '-')
  if default.is_dir() and any(default.iterdir()):
    return default
  if not builder.can_download:
    raise DatasetError(
      f'{name} cannot be downloaded ({builder.LICENSE}). Put your copy into '
      f'{default} or name its folder (--manual_dir). {needed}'
    )
  if not download:
    raise DatasetError(
      f'{name} is not to be downloaded, and there is no copy in {default}. '
      f'Name the folder of your copy (--manual_dir). {needed}'
    )
  return default


def _read(builder: TextBuilder, split: str) -> Iterator[str]:
  source = cast(Any, builder).as_data_source(split)
  for index in range(len(source)):
    try:
      text = source[index]['text']
    except Exception as error:  # array_record has no class of its own.
      raise DatasetError(
        f'Record {index} of {len(source)} of {split} in {builder.data_dir} '
        f'cannot be read: {error}. Delete that folder and prepare again.'
      ) from error
    yield text.decode()
