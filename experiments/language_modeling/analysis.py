"""Did it work? Perplexities in a table, by word and unroll length, and curves.

  python -m experiments.language_modeling.analysis runs/language_modeling-quick

Several runs stand in one table and in one figure, in the folder that they have
in common.
"""

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import json
import os
import pathlib
import sys
import textwrap
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments import configuration
from experiments.language_modeling.perplexity import exp
from rmc_jax.analysis.attention import draw_reading
from rmc_jax.analysis.curves import draw_curves
from rmc_jax.analysis.curves import draw_lines
from rmc_jax.analysis.table import text_table
from rmc_jax.errors import CONFIGURATION_ERROR
from rmc_jax.errors import ConfigurationError
from rmc_jax.training.log import read_metrics

# The share of the unigram model's perplexity that counts as learned.
SOLVED = 0.5
SUMMARY = 'perplexity.json'
CURVES = 'figures/learning_curve.png'
LENGTHS = 'figures/unroll_length.png'
READING = 'figures/reading.png'
READING_DATA = 'figures/reading.npz'
SAMPLES = 'samples.txt'

# Santoro et al. 2018, table 2: corpus -> perplexity on valid and test.
TABLE_2 = {
  'wikitext103': (30.8, 31.6),
  'gutenberg': (39.2, 42.0),
  'gigaword': (None, 38.3),
}


class Run(NamedTuple):
  """A run as its folder has it."""

  workdir: pathlib.Path
  config: Mapping[str, Any]
  records: Sequence[Mapping[str, Any]]
  summary: Mapping[str, Any]


def score(summary: Mapping[str, Any]) -> float:
  """Perplexity on test by the unigram model's; SOLVED is the threshold."""
  test = summary['splits']['test']
  return test['perplexity'] / test['unigram']


def report(*workdirs: pathlib.Path) -> str:
  """Draws the runs, and says how each did and where everything is.

  Args:
    *workdirs: finished runs of `experiments.language_modeling.train`; one gets
      its figures, several their parent.

  Returns:
    The tables, then the paths.

  Raises:
    ValueError, OSError, ConfigurationError: a folder is no finished run.
  """
  runs = [_read(workdir) for workdir in workdirs]
  folder = pathlib.Path(os.path.commonpath(workdirs))
  draw_curves(
    folder / CURVES,
    [(run.workdir.name, _perplexities(run.records)) for run in runs],
    metric='perplexity',
    title=', '.join(sorted({run.config['corpus'] for run in runs})),
  )
  by_length = [
    (run.workdir.name, {int(k): v for k, v in lengths.items()})
    for run in runs
    if (lengths := run.summary['by_length'])
  ]
  lines = [
    perplexity_table(runs),
    '',
    frequency_table(runs),
    '',
    f'curve: {folder / CURVES}',
  ]
  if by_length:
    draw_lines(
      folder / LENGTHS,
      by_length,
      x_label='words from one start of the state to the next',
      y_label='perplexity on valid',
    )
    lines.append(f'unroll length: {folder / LENGTHS}')
  if len(runs) == 1:
    if (folder / READING_DATA).exists():
      draw_recorded_reading(folder)
      lines.append(f'attention and gates: {folder / READING}')
    lines.append(f'samples: {folder / SAMPLES}')
    lines.append(f'checkpoints: {folder / "checkpoints"}')
    if (folder / SAMPLES).exists():
      first, _, _ = (folder / SAMPLES).read_text().partition('\n\n')
      lines += ['', 'The first of the samples:', '', textwrap.fill(first, 80)]
  return '\n'.join(lines)


def perplexity_table(runs: Sequence[Run]) -> str:
  """Table 2: valid and test, beside what knows the frequency of words alone."""
  rows = [['perplexity', 'valid', 'test', 'paper, valid', 'paper, test']]
  for run in runs:
    splits = run.summary['splits']
    paper = (None, None)
    if run.config['core']['name'] == 'relational_memory':
      paper = TABLE_2.get(run.config['corpus'], paper)
    rows.append(
      [
        run.workdir.name,
        *(f'{splits[split]["perplexity"]:.1f}' for split in ('valid', 'test')),
        *('' if value is None else str(value) for value in paper),
      ]
    )
  for text, run in _one_of_each_text(runs).items():
    splits = run.summary['splits']
    rows.append(
      [
        f'unigram{text}',
        *(f'{splits[split]["unigram"]:.1f}' for split in ('valid', 'test')),
      ]
    )
    uniform = f'{run.summary["uniform"]:,}'
    rows.append([f'uniform{text}', uniform, uniform])
  return text_table(rows)


def frequency_table(runs: Sequence[Run]) -> str:
  """Table 3, on test: by how often a word occurs in the training text."""
  bands = list(runs[0].summary['splits']['test']['by_frequency'])
  rows = [['perplexity by count', *bands]]
  for run in runs:
    by_frequency = run.summary['splits']['test']['by_frequency']
    rows.append(
      [run.workdir.name, *(f'{by_frequency[band][0]:,.1f}' for band in bands)]
    )
  for text, run in _one_of_each_text(runs).items():
    words = run.summary['splits']['test']['by_frequency']
    rows.append([f'words{text}', *(f'{words[band][1]:,}' for band in bands)])
  return text_table(rows)


def _one_of_each_text(runs: Sequence[Run]) -> dict[str, Run]:
  """A run for each corpus and vocabulary, under what tells them apart."""
  one_of_each = {}
  for run in runs:
    text = f', {run.config["corpus"]} of {run.summary["uniform"]:,} words'
    one_of_each.setdefault(text, run)
  if len(one_of_each) == 1:
    return {'': runs[0]}
  return one_of_each


def save_samples(workdir: pathlib.Path, texts: Sequence[str]) -> None:
  """Keeps what the trained model writes, for a person."""
  (workdir / SAMPLES).write_text('\n\n'.join(texts) + '\n')


def save_reading(
  workdir: pathlib.Path,
  words: Sequence[str],
  attention: Any,
  gates: Mapping[str, Any],
) -> None:
  """Saves what `draw_recorded_reading` draws: see `draw_reading`."""
  path = workdir / READING_DATA
  path.parent.mkdir(parents=True, exist_ok=True)
  arrays: dict[str, Any] = {
    f'{name}_gate': np.asarray(gate) for name, gate in gates.items()
  }
  np.savez(path, words=words, attention=np.asarray(attention), **arrays)


def draw_recorded_reading(workdir: pathlib.Path) -> None:
  """Draws what the core did with some words, as the training recorded it."""
  data = np.load(workdir / READING_DATA)
  draw_reading(
    workdir / READING,
    [str(word) for word in data['words']],
    data['attention'],
    {
      name.removesuffix('_gate'): data[name]
      for name in data.files
      if name.endswith('_gate')
    },
  )


def main(arguments: Sequence[str]) -> int:
  """Prints the report of the folders; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m experiments.language_modeling.analysis',
    description=str(__doc__).partition('\n')[0],
  )
  parser.add_argument(
    'workdirs', nargs='+', type=pathlib.Path, help='of finished runs'
  )
  options = parser.parse_args(arguments)
  try:
    print(report(*options.workdirs))
  except (OSError, ValueError, ConfigurationError) as error:
    print(f'analysis: {error}', file=sys.stderr)
    return CONFIGURATION_ERROR
  return 0


def _read(workdir: pathlib.Path) -> Run:
  config = configuration.read(workdir)['config']
  path = workdir / SUMMARY
  if not path.exists():
    raise ValueError(
      f'{workdir} has no {SUMMARY}, which a run writes at its end; train it '
      'further.'
    )
  try:
    summary = json.loads(path.read_text())
  except ValueError as error:
    raise ValueError(
      f'{path} cannot be read ({error}). The command that trained writes it '
      'anew.'
    ) from error
  return Run(workdir, config, read_metrics(workdir), summary)


def _perplexities(records: Sequence[Mapping[str, Any]]) -> list[dict]:
  """The lines of a log, with exp of the losses in them."""
  return [
    {
      'step': line['step'],
      **{
        group: {'perplexity': exp(line[group]['loss'])}
        for group in ('train', 'eval')
        if line.get(group, {}).get('loss') is not None
      },
    }
    for line in records
  ]


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
