"""Writes text with a trained model, word by word.

  python -m experiments.language_modeling.sample runs/language_modeling-quick \
      --prompt='The war' --num_words=100 --temperature=0.8 --top_k=40

Reads the prompt, then draws each word from the model's probabilities and reads
it in turn. Words appear as they are drawn.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import math
import pathlib
import sys

from absl import logging
import jax

from experiments import configuration
from experiments.language_modeling import train
from experiments.language_modeling.corpus import check_vocabulary
from experiments.language_modeling.corpus import open_vocabulary
from experiments.language_modeling.generate import generate
from rmc_jax.datasets.load import STYLES
from rmc_jax.errors import CONFIGURATION_ERROR
from rmc_jax.errors import ConfigurationError
from rmc_jax.tasks.language import tokens
from rmc_jax.training import loop
from rmc_jax.training.checkpoint import Checkpointer
from rmc_jax.training.state import TrainState
from rmc_jax.types import ArrayTree


def main(arguments: Sequence[str]) -> int:
  """Streams the text; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m experiments.language_modeling.sample',
    description=str(__doc__).partition('\n')[0],
  )
  parser.add_argument('workdir', type=pathlib.Path, help='of a trained model')
  parser.add_argument('--prompt', default='', help='what the text begins with')
  parser.add_argument(
    '--num_words', type=int, default=100, help='to be written (default: 100)'
  )
  parser.add_argument(
    '--temperature',
    type=float,
    default=1.0,
    help='below 1 the likely words become likelier; 0: always the likeliest '
    '(default: 1)',
  )
  parser.add_argument(
    '--top_k',
    type=int,
    default=None,
    help='draw among so many likeliest words (default: all)',
  )
  parser.add_argument(
    '--data_dir',
    help='where the corpus lies now (default: where the training had it)',
  )
  parser.add_argument(
    '--unknown',
    action='store_true',
    help='let <unk> be drawn; without it the others share its probability',
  )
  parser.add_argument('--seed', type=int, default=0, help='default: 0')
  options = parser.parse_args(arguments)
  # Nothing is resumed, so nobody needs to know what else differs.
  logging.set_verbosity(logging.ERROR)
  try:
    _check(options)
    for word in write(
      options.workdir,
      options.prompt,
      options.num_words,
      temperature=options.temperature,
      top_k=options.top_k,
      unknown=options.unknown,
      data_dir=options.data_dir,
      seed=options.seed,
    ):
      print('\n' if word == tokens.EOS else f'{word} ', end='', flush=True)
    print()
  except (OSError, ValueError, ConfigurationError) as error:
    print(f'sample: {error}', file=sys.stderr)
    return CONFIGURATION_ERROR
  return 0


def write(
  workdir: pathlib.Path,
  prompt: str,
  num_words: int,
  *,
  temperature: float = 1.0,
  top_k: int | None = None,
  unknown: bool = False,
  data_dir: str | None = None,
  seed: int = 0,
) -> Iterator[str]:
  """The words of the prompt, and then those that are drawn.

  Args:
    workdir: of `experiments.language_modeling.train`, with a checkpoint.
    prompt: cut into words as the corpus is, which makes an end of line a word;
      '' for a text from its beginning.
    num_words: how many to draw.
    temperature: see `generate.draw`.
    top_k: see `generate.draw`.
    unknown: see `generate.generate`.
    data_dir: where the corpus lies, for its vocabulary; None for where the
      training had it.
    seed: of what is drawn.

  Returns:
    An iterator over words as the vocabulary has them.

  Raises:
    ValueError, ConfigurationError: there is no trained model, or no corpus.
  """
  config = read_config(workdir)
  vocabulary = open_vocabulary(
    config.corpus,
    config.data_dir if data_dir is None else data_dir,
    config.vocabulary_size,
    config.lower_case,
  )
  check_vocabulary(workdir, vocabulary)
  params = read_params(workdir, train.make_init(config, vocabulary.size))

  if top_k is not None and top_k > vocabulary.size:
    raise ValueError(
      f'top_k must be at most {vocabulary.size}: the vocabulary has '
      f'{vocabulary.size} words. Got: {top_k}.'
    )

  style = STYLES[config.corpus]
  words = list(tokens.tokenize(prompt, style, config.lower_case))
  # The last line goes on, unless it says that it does not.
  if words[-1:] == [tokens.EOS] and not prompt.endswith('\n'):
    words.pop()
  return generate(
    train.make_reader(config, vocabulary.size, params),
    train.make_evaluated(config, vocabulary.size).initial_state(1),
    vocabulary,
    words,
    num_words,
    temperature=temperature,
    top_k=top_k,
    unknown=unknown,
    seed=seed,
  )


def read_config(workdir: pathlib.Path) -> train.Config:
  """The configuration that a run was trained with."""
  saved = configuration.read(workdir)
  if saved['experiment'] != 'language_modeling':
    raise ConfigurationError(
      f'{workdir} is a run of {saved["experiment"]}, expected one of '
      'language_modeling.'
    )
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
  """The parameters of the newest good checkpoint, on a device.

  The run may be under way: nothing of it is touched.
  """
  with Checkpointer(workdir / loop.CHECKPOINTS, read_only=True) as saver:
    restored = saver.restore(jax.eval_shape(init))
  if restored is None:
    raise ConfigurationError(
      f'{workdir} has no checkpoint yet; train it further.'
    )
  return jax.device_put(restored[1].params)


def _check(options: argparse.Namespace) -> None:
  if not 0 <= options.temperature < math.inf:
    raise ValueError(
      f'--temperature must be >= 0 and finite. Got: {options.temperature}.'
    )
  for name in ('num_words', 'top_k'):
    value = getattr(options, name)
    if value is not None and value < 1:
      raise ValueError(f'--{name} must be >= 1. Got: {value}.')


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
