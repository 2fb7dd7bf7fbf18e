"""Times the reading of a text against the training that consumes it.

  launch/benchmark.sh text --sizes=quick,wikitext103 --output=results.json

The text is artificial: random words in a memory-mapped file, as a corpus is.
`pipeline` reads batches and does nothing else; `training` trains a language
model on all devices, reading included. `ratio` is the time per word relative to
the pipeline, in each trial: at 10 at most a tenth of the training time goes
into its data.
"""

import argparse
import functools
import pathlib
import tempfile
from typing import Any

import numpy as np

from experiments.benchmarks import report
from experiments.benchmarks import throughput
from experiments.language_modeling import sweep

# Preset -> words in its vocabulary: the limit of the preset or, without one,
# the vocabulary of the published corpus.
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
_CHUNK = 1 << 20  # words written at a time


def main(arguments: list[str] | None = None) -> None:
  """Measures size after size, and prints a table for each."""
  # The default trains fastest, so it needs the most data.
  parser = report.make_parser('text', __doc__, SIZES, 'quick_lstm')
  add = parser.add_argument
  add('--num_words', type=report.positive, default=10**8, help='of the text')
  options = parser.parse_args(arguments)
  table = functools.partial(throughput.table, 'words')
  report.run(parser, options, arguments, measure, table)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
  """Times the pipeline and the training of a size, on an artificial text."""
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, 'train.ids')
    request = {
      'preset': sweep.PRESETS[name],
      'vocabulary_size': SIZES[name],
      'path': str(path),
      'dtype': write_text(path, SIZES[name], options.num_words),
    }
    return throughput.measure_with_pipeline('text', request, options)


def write_text(path: pathlib.Path, vocabulary_size: int, num_words: int) -> str:
  """Writes random words by Zipf's law; returns the type of their ids."""
  cumulative = np.cumsum(1 / np.arange(1, vocabulary_size + 1))
  rng = np.random.default_rng(0)
  dtype = 'uint16' if vocabulary_size <= 1 << 16 else 'int32'
  with path.open('wb') as file:
    for first in range(0, num_words, _CHUNK):
      drawn = rng.random(min(_CHUNK, num_words - first)) * cumulative[-1]
      file.write(np.searchsorted(cumulative, drawn).astype(dtype).tobytes())
  return dtype


if __name__ == '__main__':
  main()
