"""Generates text with a trained model, word by word.

  python -m experiments.language_modeling.sample runs/language_modeling-quick \
      --prompt='The war' --num_words=100 --temperature=0.8 --top_k=40

Each word is drawn from the model's distribution after the prompt and the words
drawn so far, and printed as soon as it is drawn.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import math
import pathlib
import sys
from typing import Any

from absl import logging
import jax

from experiments import configuration
from experiments.language_modeling import network
from experiments.language_modeling import train
from experiments.language_modeling.corpus import check_vocabulary
from experiments.language_modeling.corpus import open_corpus
from experiments.language_modeling.generate import generate
from rmc_jax.analysis import runs
from rmc_jax.datasets.load import STYLES
from rmc_jax.errors import CONFIGURATION_ERROR
from rmc_jax.errors import ConfigurationError
from rmc_jax.tasks.language import tokens
from rmc_jax.training import bucket
from rmc_jax.training import runner
from rmc_jax.training.checkpoint import Checkpointer
from rmc_jax.training.state import TrainState
from rmc_jax.types import ArrayTree


def main(arguments: Sequence[str]) -> int:
  """Streams the text; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m experiments.language_modeling.sample',
    description=str(__doc__).partition('\n')[0],
  )
  parser.add_argument('workdir', help='the workdir of a trained model')
  parser.add_argument('--prompt', default='', help='beginning of the text')
  parser.add_argument(
    '--num_words',
    type=int,
    default=100,
    help='words to generate (default: 100)',
  )
  parser.add_argument(
    '--temperature',
    type=float,
    default=1.0,
    help='below 1 makes likely words likelier; 0: always the likeliest '
    '(default: 1)',
  )
  parser.add_argument(
    '--top_k',
    type=int,
    help='draw from this many likeliest words (default: all)',
  )
  parser.add_argument(
    '--data_dir', help='folder of the corpus (default: that of the training)'
  )
  parser.add_argument(
    '--unknown',
    action='store_true',
    help='allow <unk>; otherwise the other words share its probability',
  )
  parser.add_argument('--seed', type=int, default=0, help='default: 0')
  options = parser.parse_args(arguments)
  # Nothing is resumed, so other package versions do not matter.
  logging.set_verbosity(logging.ERROR)
  try:
    _check(options)
    with bucket.as_folder(options.workdir, checkpoints=True) as folder:
      options.workdir = folder
      for word in sample(**vars(options)):
        print('\n' if word == tokens.EOS else f'{word} ', end='', flush=True)
      print()
  except (OSError, ValueError) as error:
    print(f'sample: {error}', file=sys.stderr)
    return CONFIGURATION_ERROR
  return 0


def sample(
  workdir: pathlib.Path,
  prompt: str,
  num_words: int,
  *,
  data_dir: str | None = None,
  top_k: int | None = None,
  **options: Any,
) -> Iterator[str]:
  """Returns an iterator over the words of the prompt and generated ones.

  The arguments are the flags of the program; `options` are those of `generate`.
  The prompt is split into words like the corpus, where the end of a line is a
  word too.

  Raises:
    ValueError: there is no trained model, or no corpus.
  """
  config = read_config(workdir)
  vocabulary = open_corpus(
    config.corpus,
    config.data_dir if data_dir is None else data_dir,
    config.vocabulary_size,
    config.lower_case,
    splits=(),
  ).vocabulary
  check_vocabulary(workdir, vocabulary)
  params = read_params(workdir, train.make_init(config, vocabulary.size))
  if top_k is not None and top_k > vocabulary.size:
    raise ValueError(
      f'top_k must be at most {vocabulary.size}: the vocabulary has '
      f'{vocabulary.size} words. Got: {top_k}.'
    )
  style = STYLES[config.corpus]
  words = list(tokens.tokenize(prompt, style, config.lower_case))
  # Without a newline at its end, the prompt's last line continues.
  if words[-1:] == [tokens.EOS] and not prompt.endswith('\n'):
    words.pop()
  make = functools.partial(train.make_model, config, vocabulary.size)
  return generate(
    network.make_next_word(make, params),
    network.make_evaluated(make).initial_state(1),
    vocabulary,
    words,
    num_words,
    top_k=top_k,
    **options,
  )


def read_config(workdir: pathlib.Path) -> train.Config:
  """Returns the configuration of a run."""
  saved = runs.read_config(workdir, 'language_modeling')
  # JSON has no tuples.
  fields = jax.tree.map(
    lambda value: tuple(value) if isinstance(value, list) else value,
    saved['config'],
    is_leaf=lambda value: isinstance(value, list),
  )
  return configuration.with_preset(train.Config, {'saved': fields}, 'saved')


def read_params(
  workdir: pathlib.Path, init: Callable[[], TrainState]
) -> ArrayTree:
  """Returns the parameters of the newest good checkpoint, on a device.

  The run may be in progress; nothing in its folder is changed.
  """
  with Checkpointer(workdir / runner.CHECKPOINTS, read_only=True) as saver:
    restored = saver.restore(jax.eval_shape(init))
  if restored is None:
    raise ConfigurationError(
      f'{workdir} has no checkpoint yet; train it further.'
    )
  return jax.device_put(restored.state.params)


def _check(options: argparse.Namespace) -> None:
  if not 0 <= options.temperature < math.inf:
    raise ValueError(
      '--temperature must be finite and at least 0. '
      f'Got: {options.temperature}.'
    )
  for name in ('num_words', 'top_k'):
    value = getattr(options, name)
    if value is not None and value < 1:
      raise ValueError(f'--{name} must be at least 1. Got: {value}.')


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
