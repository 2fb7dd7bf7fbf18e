"""A text as ids in one memory-mapped file, which knows its vocabulary.

The file is a line of JSON, filled up with spaces to 512 bytes, and then the
ids, little-endian: uint16 where the vocabulary has at most 65,536 words, which
halves what is read at every step, else int32.
"""

from collections.abc import Iterable
import itertools
import json
import os
import pathlib

import numpy as np

from rmc_jax.files import atomic_writer
from rmc_jax.tasks.language import tokens as tokens_lib
from rmc_jax.tasks.language.vocabulary import Vocabulary

_HEADER_BYTES = 512  # a multiple of the size of any id
_FORMAT = 'rmc_jax ids 1'
_CHUNK = 1 << 16  # ids written at a time


def write_ids(
  path: str | os.PathLike,
  documents: Iterable[str],
  vocabulary: Vocabulary,
  style: str,
  lower: bool = False,
) -> int:
  """Writes the ids of all documents, one after the other; holds few of them.

  The file appears when it is whole: a process that dies leaves what was there.

  Args:
    path: the file, in a folder that exists.
    documents: of one split, in order, read once.
    vocabulary: as it is when the ids are read again.
    style: of `tokens.tokenize`; the one the vocabulary was counted with.
    lower: of `tokens.tokenize`, likewise.

  Returns:
    How many ids there are.

  Raises:
    ValueError: an unknown style, or documents without a token.
  """
  path = pathlib.Path(path)
  dtype = np.dtype('<u2' if vocabulary.size <= 1 << 16 else '<i4')
  tokens = itertools.chain.from_iterable(
    tokens_lib.tokenize(document, style, lower) for document in documents
  )
  count = 0
  with atomic_writer(path) as file:
    file.write(bytes(_HEADER_BYTES))
    while (ids := vocabulary.encode(itertools.islice(tokens, _CHUNK))).size:
      file.write(ids.astype(dtype).tobytes())
      count += ids.size
    if not count:
      raise ValueError(
        f'No tokens for {path}: the split is empty. Check the files that it '
        'was prepared from.'
      )
    header = json.dumps(
      {
        'format': _FORMAT,
        'dtype': dtype.str,
        'count': count,
        'vocabulary': vocabulary.digest,
      }
    )
    file.seek(0)
    file.write(header.encode().ljust(_HEADER_BYTES - 1) + b'\n')
  return count


def read_ids(path: str | os.PathLike, vocabulary: Vocabulary) -> np.memmap:
  """Opens what `write_ids` wrote; the disk is read where ids are looked at.

  Args:
    path: the file.
    vocabulary: the one the ids were written with.

  Returns:
    [tokens] uint16 or int32, read-only.

  Raises:
    ValueError: the file is missing, damaged, or of another vocabulary.
  """
  path = pathlib.Path(path)
  if not path.exists():
    raise ValueError(f'There are no ids at {path}. Prepare this split.')
  header = _read_header(path)
  dtype, count = np.dtype(header['dtype']), header['count']
  expected = _HEADER_BYTES + count * dtype.itemsize
  if path.stat().st_size != expected:
    raise ValueError(
      f'{path} has {path.stat().st_size} bytes; its {count} ids take '
      f'{expected}. {_REMEDY}'
    )
  if header['vocabulary'] != vocabulary.digest:
    raise ValueError(
      f'{path} was written with another vocabulary than the one given, of '
      f'{vocabulary.size} words: its ids mean other words. {_REMEDY}'
    )
  return np.memmap(path, dtype, 'r', _HEADER_BYTES, (count,))


_REMEDY = 'Delete it and prepare this split again.'


def _read_header(path: pathlib.Path) -> dict:
  with path.open('rb') as file:
    line = file.read(_HEADER_BYTES)
  try:
    header = json.loads(line)
  except ValueError:
    header = None
  if not isinstance(header, dict) or header.get('format') != _FORMAT:
    raise ValueError(
      f'{path} is no file of ids: it should begin with a line of JSON that '
      f'has the format {_FORMAT!r}. Got: {line[:40]!r}. {_REMEDY}'
    )
  return header
