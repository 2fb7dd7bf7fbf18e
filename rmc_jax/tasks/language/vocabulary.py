"""The words a model knows: their ids, in the order of their frequency."""

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


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Words in the order of their ids, the most frequent first.

  Adaptive and sampled softmax need that order. Words as frequent as each other
  are in the order of their characters, so the ids do not depend on the order
  in which the text was read.

  Attributes:
    words: all different; `EOS` and `unknown` are among them, and have ids
      according to their frequency as the others do.
    counts: how often each of them occurs in the training text; for `unknown`,
      all words that are not in the vocabulary included.
    unknown: the word that stands for all words not in the vocabulary.
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
    """The most frequent words of a training text.

    Args:
      counts: word -> how often it occurs, of `tokens.count`. `EOS` and
        `unknown` may be missing; they are in the vocabulary all the same.
      max_size: the size of the vocabulary at most, both symbols included; None
        for no limit.
      unknown: replaces all other words. Where the text has it already, as
        WikiText and Penn Treebank do, it is the same symbol.
      min_count: words less frequent than this are left out; 5 for Text8 in
        Sukhbaatar et al. 2015.

    Returns:
      The vocabulary.

    Raises:
      ValueError: no words, or a limit below the number of symbols.
    """
    symbols = (EOS, unknown)
    if unknown == EOS:
      raise ValueError(f'unknown must differ from {EOS!r}, the end of a line.')
    if max_size is not None and max_size < len(symbols):
      raise ValueError(
        f'A vocabulary needs at least {len(symbols)} words, for the symbols '
        f'{" and ".join(symbols)}; got max_size={max_size}. Raise it, or '
        'give None for no limit.'
      )
    if not any(counts.values()):
      raise ValueError(
        'There are no words to make a vocabulary of: the training split is '
        'empty. Check the files that it was prepared from.'
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
    """How many words there are."""
    return len(self.words)

  @functools.cached_property
  def ids(self) -> dict[str, int]:
    """The id of every word."""
    return {word: index for index, word in enumerate(self.words)}

  @property
  def eos(self) -> int:
    """The id of the end of a line or document."""
    return self.ids[EOS]

  @property
  def unk(self) -> int:
    """The id of every word that is not in the vocabulary."""
    return self.ids[self.unknown]

  @functools.cached_property
  def digest(self) -> str:
    """Of all that an id depends on: words, their order, and `unknown`."""
    text = '\n'.join((self.unknown, *self.words))
    return hashlib.sha256(text.encode()).hexdigest()

  def encode(self, tokens: Iterable[str]) -> np.ndarray:
    """The ids of `tokens`, [tokens] int32; `unk` for those it has not."""
    return np.fromiter(
      map(self.ids.get, tokens, itertools.repeat(self.unk)), np.int32
    )

  def decode(self, ids: Iterable[int]) -> list[str]:
    """The words with these ids; undoes `encode` but for unknown words."""
    return [self.words[index] for index in ids]

  def save(self, path: str | os.PathLike) -> None:
    """Writes a text file: a title line, then word, tab, count on each line."""
    lines = [f'{_TITLE}\t{self.unknown}']
    lines += map('{}\t{}'.format, self.words, self.counts)
    with atomic_writer(pathlib.Path(path)) as file:
      file.write('\n'.join((*lines, '')).encode())

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Vocabulary':
    """Reads what `save` wrote.

    Args:
      path: the file.

    Returns:
      The vocabulary, equal to the saved one.

    Raises:
      ValueError: the file is missing, is not UTF-8, or does not hold a
        vocabulary; with its name and the line or byte.
    """
    title, *lines = _read(path).removesuffix('\n').split('\n')
    name, _, unknown = title.partition('\t')
    if name != _TITLE:
      raise ValueError(
        f'{path} is no vocabulary: its first line should begin with '
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


_REMEDY = 'Delete it, and the ids written with it, and prepare the text again.'


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
