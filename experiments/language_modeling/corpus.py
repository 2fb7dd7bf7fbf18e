"""A prepared corpus as ids: counted and encoded once, then memory-mapped."""

from collections.abc import Iterator
from collections.abc import Sequence
import json
import os
import pathlib
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.language_modeling.perplexity import no_progress
from experiments.language_modeling.perplexity import ProgressFn
from rmc_jax import files
from rmc_jax.datasets import load
from rmc_jax.errors import ConfigurationError
from rmc_jax.tasks.language import tokens
from rmc_jax.tasks.language.ids import read_ids
from rmc_jax.tasks.language.ids import write_ids
from rmc_jax.tasks.language.vocabulary import Vocabulary
from rmc_jax.training import distributed

TEXT = 'text.json'  # in a workdir: identifies the text of the run
SPLITS = ('train', 'valid', 'test')


class Corpus(NamedTuple):
  """The data of a language model."""

  vocabulary: Vocabulary  # the most frequent words first
  ids: dict[str, np.ndarray]  # split -> [tokens], memory-mapped


def open_corpus(
  name: str,
  data_dir: str | os.PathLike[str],
  vocabulary_size: int | None = None,
  lower_case: bool = False,
  progress_fn: ProgressFn = no_progress,
  splits: Sequence[str] = SPLITS,
) -> Corpus:
  """Maps the ids of a prepared corpus; makes them the first time.

  The ids are kept with the corpus, in a folder for each vocabulary size and
  case. Several processes may make them at once: files are written atomically,
  with the same content.

  Args:
    name: one of `load.NAMES`.
    data_dir: the folder that `python -m rmc_jax.datasets.prepare` wrote to.
    vocabulary_size: words at most, including symbols; None for no limit.
    lower_case: whether to convert the text to lower case.
    progress_fn: called after each document.
    splits: those to map; the vocabulary always comes from 'train'.

  Raises:
    ValueError: the corpus is not prepared or damaged, or the vocabulary too
      small.
  """
  size = 'all' if vocabulary_size is None else vocabulary_size
  case = 'lower' if lower_case else 'as_is'
  folder = load.folder(name, data_dir=data_dir) / 'ids' / f'{size}-{case}'
  style = load.STYLES[name]

  def documents(split: str) -> Iterator[str]:
    what = f'{name} {split} documents'
    progress_fn(what, 0, 0)
    for i, text in enumerate(load.documents(name, split, data_dir=data_dir), 1):
      yield text
      progress_fn(what, i, 0)

  path = folder / 'vocabulary.txt'
  if not path.exists():
    counts = tokens.count(documents('train'), style, lower_case)
    vocabulary = Vocabulary.build(counts, vocabulary_size)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary.save(path)
  vocabulary, ids = Vocabulary.load(path), {}
  for split in splits:
    path = folder / f'{split}.ids'
    if not path.exists():
      write_ids(path, documents(split), vocabulary, style, lower_case)
    ids[split] = read_ids(path, vocabulary)
  return Corpus(vocabulary, ids)


def check_same_corpus(workdir: pathlib.Path, corpus: Corpus) -> None:
  """Refuses to resume a run with another text, or with one per process.

  Another text may have as many words, so that checkpoints fit, but its ids mean
  other words. Without checkpoints any text is accepted, and the primary process
  records it.

  Raises:
    ConfigurationError: the run has another text, or its text is unknown.
  """
  # The digest of the words and the size of each split.
  here: dict[str, Any] = {'vocabulary': corpus.vocabulary.digest}
  here |= {split: len(corpus.ids[split]) for split in SPLITS}
  distributed.check_same('text', json.dumps(here))
  distributed.from_primary(lambda: _check_text(workdir, here))


def check_vocabulary(workdir: pathlib.Path, vocabulary: Vocabulary) -> None:
  """Like `check_same_corpus`, for the vocabulary alone."""
  there = _read_identity(workdir / TEXT)
  if there is not None and there.get('vocabulary') != vocabulary.digest:
    raise ConfigurationError(
      f'{workdir} was trained with another vocabulary ({workdir / TEXT}), so '
      'the ids would mean other words. Pass the folder of its text with '
      '--data_dir.'
    )


def _check_text(workdir: pathlib.Path, here: dict[str, Any]) -> None:
  """Compares the text with that of the workdir, or records it there."""
  path, text = workdir / TEXT, json.dumps(here)
  if not any(workdir.glob('checkpoints/*')):
    files.atomic_write(path, text.encode())
    return
  there = _read_identity(path)
  if there is None:
    raise ConfigurationError(
      f'{workdir} has checkpoints but no {TEXT}, so their text is unknown. '
      'Restore the file, or choose another --workdir.'
    )
  if differing := [name for name in here if there.get(name) != here[name]]:
    raise ConfigurationError(
      f'{workdir} was trained on another text: {", ".join(differing)} differ '
      f'({path} has {there}, --config.data_dir has {here}). Pass '
      '--config.data_dir of that text, or another --workdir.'
    )


def _read_identity(path: pathlib.Path) -> dict[str, Any] | None:
  if not path.exists():
    return None
  try:
    return dict(json.loads(path.read_text()))
  except (TypeError, ValueError) as error:
    raise ConfigurationError(
      f'{path} cannot be read ({error}). Restore the file, or choose another '
      '--workdir.'
    ) from error
