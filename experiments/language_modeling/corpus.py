"""A corpus as ids: prepared text, counted and encoded once, then mapped."""

from collections.abc import Callable
from collections.abc import Iterator
import json
import os
import pathlib
from typing import Any
from typing import NamedTuple

import numpy as np

from rmc_jax import files
from rmc_jax.datasets import load
from rmc_jax.tasks.language import tokens
from rmc_jax.tasks.language.ids import read_ids
from rmc_jax.tasks.language.ids import write_ids
from rmc_jax.tasks.language.vocabulary import Vocabulary
from rmc_jax.training import distributed
from rmc_jax.training import lock
from rmc_jax.training import watchdog

TEXT = 'text.json'  # in a workdir: which text it is a run of
SPLITS = ('train', 'valid', 'test')


class Corpus(NamedTuple):
  """What a language model is trained on.

  Attributes:
    vocabulary: its words, the most frequent first.
    ids: split -> [tokens] integers, memory-mapped.
  """

  vocabulary: Vocabulary
  ids: dict[str, np.ndarray]


def open_corpus(
  name: str,
  data_dir: str | os.PathLike[str],
  vocabulary_size: int | None = None,
  lower_case: bool = False,
  beat: Callable[[], None] = watchdog.beat,
) -> Corpus:
  """Maps the ids of a prepared corpus; makes them the first time.

  They are kept with the corpus, in a folder for each way to make them. Several
  processes may do so at once: each writes whole files, all of them the same.

  Args:
    name: one of `load.NAMES`.
    data_dir: where `python -m rmc_jax.datasets.prepare` has put it.
    vocabulary_size: words at most, symbols included; None for no limit.
    lower_case: whether to write all letters small.
    beat: called after each document; a large corpus takes hours.

  Returns:
    The corpus.

  Raises:
    ValueError: it is not prepared, is damaged, or the vocabulary too small.
  """
  vocabulary = open_vocabulary(
    name, data_dir, vocabulary_size, lower_case, beat
  )
  folder = _folder(name, data_dir, vocabulary_size, lower_case)
  ids = {}
  for split in SPLITS:
    path = folder / f'{split}.ids'
    if not path.exists():
      documents = _documents(name, split, data_dir, beat)
      write_ids(path, documents, vocabulary, load.STYLES[name], lower_case)
    ids[split] = read_ids(path, vocabulary)
  return Corpus(vocabulary, ids)


def identity(corpus: Corpus) -> dict[str, Any]:
  """What tells a text from others: its words, and how many each split has."""
  return {
    'vocabulary': corpus.vocabulary.digest,
    **{split: len(corpus.ids[split]) for split in SPLITS},
  }


def hold_to(workdir: pathlib.Path, corpus: Corpus) -> None:
  """Refuses to go on in a run that was begun with another text.

  The same preset on another text may have as many words, so that checkpoints
  fit, but its ids mean other words. Without checkpoints any text will do; the
  primary process then notes which it is.

  Args:
    workdir: of the run.
    corpus: what is to be read there.

  Raises:
    ValueError: the run has another text, or does not say which.
    ConfigurationError: another process is training there.
  """
  path, here = workdir / TEXT, identity(corpus)
  if any(workdir.glob('checkpoints/*')):
    there = _read_identity(path)
    if there is None:
      raise ValueError(
        f'{workdir} has checkpoints but no {TEXT} that says of which text. '
        'Bring it back, or choose another --workdir.'
      )
    if differing := [name for name in here if there.get(name) != here[name]]:
      raise ValueError(
        f'{workdir} was trained on another text: its '
        f'{", ".join(differing)} differ from those found here ({path} has '
        f'{there}, here are {here}). Give --config.data_dir of that text, or '
        'another --workdir.'
      )
  elif distributed.is_primary():
    with lock.hold(workdir):  # Else it could be that of a run under way.
      files.atomic_write(path, json.dumps(here).encode())


def check_vocabulary(workdir: pathlib.Path, vocabulary: Vocabulary) -> None:
  """As `hold_to`, for who has the words alone."""
  there = _read_identity(workdir / TEXT)
  if there is not None and there.get('vocabulary') != vocabulary.digest:
    raise ValueError(
      f'{workdir} was trained with another vocabulary than the one found '
      f'({workdir / TEXT}): the model would be given other words. Name the '
      'folder of that text (--data_dir).'
    )


def _read_identity(path: pathlib.Path) -> dict[str, Any] | None:
  if not path.exists():
    return None
  try:
    return dict(json.loads(path.read_text()))
  except (TypeError, ValueError) as error:
    raise ValueError(
      f'{path} cannot be read ({error}). Bring back what was there.'
    ) from error


def open_vocabulary(
  name: str,
  data_dir: str | os.PathLike[str],
  vocabulary_size: int | None = None,
  lower_case: bool = False,
  beat: Callable[[], None] = watchdog.beat,
) -> Vocabulary:
  """The words alone; counts them the first time. See `open_corpus`."""
  folder = _folder(name, data_dir, vocabulary_size, lower_case)
  path = folder / 'vocabulary.txt'
  if not path.exists():
    documents = _documents(name, 'train', data_dir, beat)
    counts = tokens.count(documents, load.STYLES[name], lower_case)
    vocabulary = Vocabulary.build(counts, vocabulary_size)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary.save(path)
  return Vocabulary.load(path)


def _folder(
  name: str,
  data_dir: str | os.PathLike[str],
  vocabulary_size: int | None,
  lower_case: bool,
) -> pathlib.Path:
  """Where what is made of a corpus in this way is kept, and dies with it."""
  size = 'all' if vocabulary_size is None else vocabulary_size
  case = 'lower' if lower_case else 'as_is'
  return load.folder(name, data_dir=data_dir) / 'ids' / f'{size}-{case}'


def _documents(
  name: str,
  split: str,
  data_dir: str | os.PathLike[str],
  beat: Callable[[], None],
) -> Iterator[str]:
  for text in load.documents(name, split, data_dir=data_dir):
    yield text
    beat()
