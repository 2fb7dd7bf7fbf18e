"""A text as ids in one memory-mapped file.

The file is a line of JSON, padded with spaces to 512 bytes, and then the ids,
little-endian: uint16 for vocabularies of at most 65,536 words, which halves the
bytes read at every step, else int32. The header identifies the vocabulary.
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
_REMEDY = 'Delete it and prepare this split again.'


def write_ids(
  path: str | os.PathLike,
  documents: Iterable[str],
  vocabulary: Vocabulary,
  style: str,
  lower: bool = False,
) -> int:
  """Writes the ids of a split, a few at a time; returns their number.

  Documents are read once. `style` and `lower` are those of `tokens.tokenize`,
  as for the counts of the vocabulary. The write is atomic: a process that dies
  leaves the previous file.

  Raises:
    ValueError: the style is unknown, or the documents have no tokens.
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
    header = {
      'format': _FORMAT,
      'dtype': dtype.str,
      'count': count,
      'vocabulary': vocabulary.digest,
    }
    file.seek(0)
    file.write(json.dumps(header).encode().ljust(_HEADER_BYTES - 1) + b'\n')
  return count


def read_ids(path: str | os.PathLike, vocabulary: Vocabulary) -> np.memmap:
  """Memory-maps a file of `write_ids`: [tokens] uint16 or int32, read-only.

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
      f'{path} was written with another vocabulary than the given one of '
      f'{vocabulary.size} words, so its ids mean other words. {_REMEDY}'
    )
  return np.memmap(path, dtype, 'r', _HEADER_BYTES, (count,))


def _read_header(path: pathlib.Path) -> dict:
  with path.open('rb') as file:
    line = file.read(_HEADER_BYTES)
  try:
    header = json.loads(line)
  except ValueError:
    header = None
  if not isinstance(header, dict) or header.get('format') != _FORMAT:
    raise ValueError(
      f'{path} is not a file of ids: it must begin with a line of JSON with '
      f'the format {_FORMAT!r}. Got: {line[:40]!r}. {_REMEDY}'
    )
  return header
