"""Scores language models: tables of perplexity, figures, samples.

  python -m experiments.language_modeling.analysis runs/language_modeling-quick

Several runs share tables and figures, in the folder that contains them.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
import sys
import textwrap
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.language_modeling.perplexity import exp
from rmc_jax.analysis import runs as runs_lib
from rmc_jax.analysis.attention import draw_attention_trace
from rmc_jax.analysis.curves import draw_curves
from rmc_jax.analysis.curves import draw_lines
from rmc_jax.analysis.table import text_table

SOLVED = 0.5  # Share of the unigram model's perplexity that counts as learned.
SUMMARY = 'perplexity.json'
CURVES = 'figures/learning_curve.png'
LENGTHS = 'figures/unroll_length.png'
TRACE = 'figures/attention_trace.png'
TRACE_DATA = 'figures/attention_trace.npz'
SAMPLES = 'samples.txt'

# Santoro et al. 2018, table 2: corpus -> perplexity on valid and test.
TABLE_2 = {
  'wikitext103': ('30.8', '31.6'),
  'gutenberg': ('39.2', '42.0'),
  'gigaword': ('', '38.3'),
}


class Measured(NamedTuple):
  """A finished run, and the perplexities that `results.write` measured."""

  run: runs_lib.Run
  summary: Mapping[str, Any]

  @property
  def config(self) -> Mapping[str, Any]:
    return self.run.config


def score(summary: Mapping[str, Any]) -> float:
  """Returns test perplexity / the unigram model's; the threshold is SOLVED."""
  test = summary['splits']['test']
  return test['perplexity'] / test['unigram']


def report(*workdirs: pathlib.Path) -> str:
  """Draws the figures; returns the tables, the paths and a sample.

  Raises:
    ValueError: a folder is not a finished run.
  """
  runs = [_read(workdir) for workdir in workdirs]
  folder = runs_lib.common_folder([each.run for each in runs])
  title = ', '.join(sorted({each.config['corpus'] for each in runs}))
  labelled = [(each.run.name, perplexities(each.run.records)) for each in runs]
  draw_curves(folder / CURVES, {title: labelled}, metric='perplexity')
  by_length = [
    (each.run.name, {int(k): v for k, v in lengths.items()})
    for each in runs
    if (lengths := each.summary['by_length'])
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
      x_label='words between resets of the state',
      y_label='perplexity on valid',
    )
    lines.append(f'unroll length: {folder / LENGTHS}')
  if len(runs) == 1:
    if (folder / TRACE_DATA).exists():
      data = np.load(folder / TRACE_DATA)
      gates = {
        name.removesuffix('_gate'): data[name]
        for name in data.files
        if name.endswith('_gate')
      }
      words = [str(word) for word in data['words']]
      draw_attention_trace(folder / TRACE, words, data['attention'], gates)
      lines.append(f'attention and gates: {folder / TRACE}')
    lines.append(f'samples: {folder / SAMPLES}')
    lines.append(f'checkpoints: {folder / runs_lib.CHECKPOINTS}')
    if (folder / SAMPLES).exists():
      first, _, _ = (folder / SAMPLES).read_text().partition('\n\n')
      lines += ['', 'The first of the samples:', '', textwrap.fill(first, 80)]
  return '\n'.join(lines)


def perplexity_table(runs: Sequence[Measured]) -> str:
  """Table 2: perplexity on valid and test, next to trivial models."""

  def cells(run, model):
    splits = run.summary['splits']
    return [f'{splits[split][model]:.1f}' for split in ('valid', 'test')]

  rows = [['perplexity', 'valid', 'test', 'paper, valid', 'paper, test']]
  for run in runs:
    paper = ()
    if run.config['core']['name'] == 'relational_memory':
      paper = TABLE_2.get(run.config['corpus'], ())
    rows.append([run.run.name, *cells(run, 'perplexity'), *paper])
  for text, run in _one_of_each_text(runs).items():
    rows.append([f'unigram{text}', *cells(run, 'unigram')])
    uniform = f'{run.summary["uniform"]:,}'
    rows.append([f'uniform{text}', uniform, uniform])
  return text_table(rows)


def frequency_table(runs: Sequence[Measured]) -> str:
  """Table 3, on test: perplexity by a word's count in the training text."""
  bands = list(runs[0].summary['splits']['test']['by_frequency'])
  rows = [['perplexity by count', *bands]]
  for run in runs:
    cells = run.summary['splits']['test']['by_frequency']
    rows.append([run.run.name, *(f'{cells[band][0]:,.1f}' for band in bands)])
  for text, run in _one_of_each_text(runs).items():
    cells = run.summary['splits']['test']['by_frequency']
    rows.append([f'words{text}', *(f'{cells[band][1]:,}' for band in bands)])
  return text_table(rows)


def perplexities(records: Sequence[Mapping[str, Any]]) -> list[dict]:
  """Returns the lines of a log with perplexity, exp of the loss."""
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


def _one_of_each_text(runs: Sequence[Measured]) -> dict[str, Measured]:
  """Returns a run for each corpus and vocabulary, by a label."""
  one_of_each = {}
  for run in runs:
    text = f', {run.config["corpus"]} of {run.summary["uniform"]:,} words'
    one_of_each.setdefault(text, run)
  if len(one_of_each) == 1:
    return {'': runs[0]}
  return one_of_each


def _read(workdir: pathlib.Path) -> Measured:
  run = runs_lib.read_run(workdir, 'language_modeling')
  return Measured(run, runs_lib.read_result(workdir, SUMMARY))


if __name__ == '__main__':
  sys.exit(runs_lib.main(report, __doc__, sys.argv[1:]))
