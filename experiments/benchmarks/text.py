"""Times how fast a text is read, beside how fast language models train on it.

  launch/benchmark.sh text --sizes=quick,wikitext103 --output=results.json

The text is made up: random words in a memory-mapped file, as a corpus is. One
turn reads the batches of this process and does nothing else; the next one
trains, on all devices, batches included. `ratio` is words read by words
trained on, in each round: at 10 a tenth of the training goes into its data at
most. Below the table: how long an update takes, and how much memory one device
has needed since the process began, where it can tell (a CPU cannot).
"""

import json
import pathlib
import statistics
import sys
import tempfile
from typing import Any

import jax
import numpy as np
from rich.console import Console

from experiments import command_line
from experiments import configuration
from experiments.benchmarks import machine
from experiments.benchmarks import options as options_lib
from experiments.benchmarks import supply
from experiments.language_modeling import sweep
from experiments.language_modeling import train
from experiments.language_modeling.corpus import Corpus
from rmc_jax.tasks.language.vocabulary import Vocabulary
from rmc_jax.training import parallel

# Preset -> words in its vocabulary: the preset's limit, or where it has none as
# many as the published corpus has.
SIZES = {
  'quick': 5000,
  'quick_lstm': 5000,
  'wikitext2': 33_278,
  'wikitext2_lstm': 33_278,
  'wikitext103': 267_735,
  'wikitext103_lstm': 267_735,
  'gutenberg': 250_000,
  'gigaword': 250_000,
  'ptb': 10_000,
  'text8': 44_000,
}
_CHUNK = 1 << 20  # words made at a time


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a row for each."""
  arguments = sys.argv[1:] if arguments is None else arguments
  parser = supply.make_parser('text', str(__doc__), SIZES, 'quick_lstm')
  parser.add_argument(
    '--num_words',
    type=options_lib.positive,
    default=100_000_000,
    help='of the text (default: 100000000)',
  )
  options = parser.parse_args(arguments)
  # As the command line of the experiments divides the CPU.
  jax.config.update('jax_num_cpu_devices', command_line.default_cpu_devices())
  results: dict[str, Any] = {
    **machine.describe('experiments.benchmarks.text', arguments),
    'num_words': options.num_words,
    'sizes': {},
    'peak_bytes': {},
  }
  for name in options.sizes:
    print(f'text: {name} is building', file=sys.stderr, flush=True)
    config = config_of(name)
    with tempfile.TemporaryDirectory() as folder:
      corpus = make_up(pathlib.Path(folder), SIZES[name], options.num_words)
      results['sizes'][name] = measure(
        config, corpus, options.rounds, options.turn_seconds
      )
    results['peak_bytes'][name] = peak_bytes()
    if options.output:
      options.output.write_text(json.dumps(results, indent=1))
  Console(width=100).print(supply.table('words', results['sizes']))
  for name, measured in results['sizes'].items():
    print(describe(name, measured['used'], results['peak_bytes'][name]))


def config_of(name: str) -> train.Config:
  """The configuration of a size."""
  return configuration.with_preset(train.Config, sweep.PRESETS, name)


def make_up(
  folder: pathlib.Path, vocabulary_size: int, num_words: int
) -> Corpus:
  """A text of random words, as often as in language: by Zipf's law.

  Args:
    folder: gets the file.
    vocabulary_size: words in the vocabulary.
    num_words: words in the text.

  Returns:
    The corpus, with 'train' alone, memory-mapped.
  """
  ranks = np.arange(vocabulary_size)
  words = '<eos>', '<unk>', *(f'w{rank}' for rank in ranks[2:])
  counts = num_words // (1 + ranks)
  cumulative = np.cumsum(1 / (1 + ranks))
  rng = np.random.default_rng(0)
  dtype = np.uint16 if vocabulary_size <= 1 << 16 else np.int32
  path = folder / 'train.ids'
  with path.open('wb') as file:
    for first in range(0, num_words, _CHUNK):
      drawn = rng.random(min(_CHUNK, num_words - first)) * cumulative[-1]
      file.write(np.searchsorted(cumulative, drawn).astype(dtype).tobytes())
  return Corpus(
    Vocabulary(tuple(words), tuple(map(int, counts))),
    {'train': np.memmap(path, dtype, 'r')},
  )


def measure(
  config: train.Config, corpus: Corpus, rounds: int, turn_seconds: float
) -> dict[str, list[float]]:
  """Words a second, read and trained on, a number for each round."""
  functions = train.make_functions(config, corpus)
  state = parallel.place_state(functions.init())
  words = config.batch_size * config.window
  read = trained = 0

  def make():
    nonlocal read
    functions.batch_at(read)
    read += 1
    return words

  def use():
    nonlocal state, trained
    batch = parallel.split_batch(functions.batch_at(trained))
    state, metrics = functions.update(state, batch)
    jax.block_until_ready(metrics)
    trained += 1
    return words

  return supply.take_turns(make, use, rounds, turn_seconds)


def peak_bytes() -> int | None:
  """The most that a device of this process has held at once, if it can tell."""
  stats = [device.memory_stats() or {} for device in jax.local_devices()]
  return max(
    (
      each['peak_bytes_in_use'] for each in stats if 'peak_bytes_in_use' in each
    ),
    default=None,
  )


def describe(name: str, used: list[float], peak: int | None) -> str:
  """A sentence on time and memory of an update."""
  config = config_of(name)
  seconds = config.batch_size * config.window / statistics.median(used)
  memory = 'memory unknown'
  if peak is not None:
    memory = f'at most {peak / 1e9:.2f} GB on a device so far'
  return (
    f'{name}: {1000 * seconds:,.1f} ms an update of {config.batch_size} x '
    f'{config.window} words on {jax.device_count()} devices; {memory}'
  )


if __name__ == '__main__':
  main()
