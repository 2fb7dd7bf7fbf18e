"""The vocabulary of a language model, ordered by frequency."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools
import hashlib
import itertools
import os
import pathlib

import numpy as np

from rmc_jax.files import atomic_writer
from rmc_jax.tasks.language.tokens import EOS

_TITLE = 'rmc_jax vocabulary'
_REMEDY = 'Delete it, and the ids written with it, and prepare the text again.'


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Words in the order of their ids, the most frequent first.

  Adaptive and sampled softmax need that order. Words of equal frequency are
  sorted alphabetically, so ids do not depend on the order of the text.

  Attributes:
    words: distinct; `EOS` and `unknown` are among them, by frequency too.
    counts: the occurrences of each word in the training text; for `unknown`,
      also those of all words outside of the vocabulary.
    unknown: the symbol for all words outside of the vocabulary.
  """

  words: tuple[str, ...]
  counts: tuple[int, ...]
  unknown: str = '<unk>'

  @classmethod
  def build(
    cls,
    counts: Mapping[str, int],
    max_size: int | None = None,
    unknown: str = '<unk>',
    *,
    min_count: int = 1,
  ) -> 'Vocabulary':
    """Builds the vocabulary of a training text.

    Args:
      counts: word -> occurrences, from `tokens.count`. `EOS` and `unknown` are
        added if missing.
      max_size: the most words, both symbols included; None for no limit.
      unknown: replaces all other words. It may occur in the text, as it does in
        WikiText and Penn Treebank.
      min_count: words with fewer occurrences are left out; 5 for Text8 in
        Sukhbaatar et al. 2015.

    Raises:
      ValueError: there are no words, or `max_size` is below the number of
        symbols.
    """
    symbols = (EOS, unknown)
    if unknown == EOS:
      raise ValueError(f'unknown must not be {EOS!r}, the end of a line.')
    if max_size is not None and max_size < len(symbols):
      raise ValueError(
        f'max_size must be at least {len(symbols)} words, for '
        f'{" and ".join(symbols)}, or None for no limit. Got: {max_size}.'
      )
    if not any(counts.values()):
      raise ValueError(
        'counts has no words: the training split is empty. Check the files '
        'that it was prepared from.'
      )
    words = [
      word
      for word, number in counts.items()
      if number >= min_count and word not in symbols
    ]
    words.sort(key=lambda word: (-counts[word], word))
    if max_size is not None:
      del words[max_size - len(symbols) :]
    kept = {word: counts[word] for word in words}
    kept[EOS] = counts.get(EOS, 0)
    kept[unknown] = sum(counts.values()) - sum(kept.values())
    ranked = sorted(kept, key=lambda word: (-kept[word], word))
    return cls(tuple(ranked), tuple(kept[word] for word in ranked), unknown)

  @property
  def size(self) -> int:
    """The number of words."""
    return len(self.words)

  @functools.cached_property
  def ids(self) -> dict[str, int]:
    """The id of every word."""
    return {word: index for index, word in enumerate(self.words)}

  @property
  def eos(self) -> int:
    """The id of `EOS`."""
    return self.ids[EOS]

  @property
  def unk(self) -> int:
    """The id of `unknown`."""
    return self.ids[self.unknown]

  @functools.cached_property
  def digest(self) -> str:
    """A hash of all that ids depend on: words, their order, `unknown`."""
    text = '\n'.join((self.unknown, *self.words))
    return hashlib.sha256(text.encode()).hexdigest()

  def encode(self, tokens: Iterable[str]) -> np.ndarray:
    """The ids of tokens, [tokens] int32; `unk` for words it does not have."""
    return np.fromiter(
      map(self.ids.get, tokens, itertools.repeat(self.unk)), np.int32
    )

  def decode(self, ids: Iterable[int]) -> list[str]:
    """The words of ids; the inverse of `encode` except for unknown words."""
    return [self.words[index] for index in ids]

  def save(self, path: str | os.PathLike) -> None:
    """Writes a text file: a title line, then word, tab, count on each line."""
    lines = [f'{_TITLE}\t{self.unknown}']
    lines += map('{}\t{}'.format, self.words, self.counts)
    with atomic_writer(pathlib.Path(path)) as file:
      file.write('\n'.join((*lines, '')).encode())

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Vocabulary':
    """Reads a file of `save`.

    Raises:
      ValueError: the file is missing, is not UTF-8, or is not a vocabulary.
    """
    title, *lines = _read(path).removesuffix('\n').split('\n')
    name, _, unknown = title.partition('\t')
    if name != _TITLE:
      raise ValueError(
        f'{path} is not a vocabulary: its first line must begin with '
        f'{_TITLE!r}. Got: {title[:80]!r}. {_REMEDY}'
      )
    counts = {}
    for number, line in enumerate(lines, 2):
      word, _, times = line.partition('\t')
      if not word or word in counts or not times.isdecimal():
        raise ValueError(
          f'{path}, line {number}: expected a new word, a tab and its count. '
          f'Got: {line[:80]!r}. {_REMEDY}'
        )
      counts[word] = int(times)
    if missing := [word for word in (EOS, unknown) if word not in counts]:
      raise ValueError(
        f'{path} has no line for {" and ".join(map(repr, missing))}. {_REMEDY}'
      )
    return cls(tuple(counts), tuple(counts.values()), unknown)


def _read(path: str | os.PathLike) -> str:
  try:
    return pathlib.Path(path).read_bytes().decode()
  except FileNotFoundError:
    raise ValueError(
      f'There is no vocabulary at {path}. Prepare the text first.'
    ) from None
  except UnicodeDecodeError as error:
    raise ValueError(
      f'{path} is not UTF-8: byte {error.start} is '
      f'{error.object[error.start]:#04x}. {_REMEDY}'
    ) from error
