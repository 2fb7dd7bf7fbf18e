"""Scores MemN2N language models: table 2, figure 3 and the learning curve.

  python -m experiments.memory_language_model.analysis \
      runs/memory_language_model-quick

Several runs share a table and the figures, in the folder that contains them.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
import sys
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.language_modeling.analysis import perplexities
from rmc_jax.analysis import runs as runs_lib
from rmc_jax.analysis.curves import draw_curves
from rmc_jax.analysis.hops import draw_hops
from rmc_jax.analysis.table import text_table

SOLVED = 0.5  # Share of the unigram model's perplexity that counts as learned.
SUMMARY = 'perplexity.json'
CURVE = 'figures/learning_curve.png'
ATTENTION = 'figures/attention.png'

# Sukhbaatar et al. 2015, table 2: corpus and units -> hops and words in memory
# -> perplexity on valid and test.
TABLE_2 = {
  ('ptb', 150): {
    (2, 100): (128, 121), (3, 100): (129, 122), (4, 100): (127, 120),
    (5, 100): (127, 118), (6, 100): (122, 115), (7, 100): (120, 114),
    (6, 25): (125, 118), (6, 50): (121, 114), (6, 75): (122, 114),
    (6, 125): (120, 112), (6, 150): (121, 114), (7, 200): (118, 111),
  },
  ('text8', 500): {
    (2, 100): (152, 187), (3, 100): (142, 178), (4, 100): (129, 162),
    (5, 100): (123, 154), (6, 100): (124, 155), (7, 100): (118, 147),
    (6, 25): (131, 163), (6, 50): (132, 166), (6, 75): (126, 158),
    (6, 125): (125, 157), (6, 150): (123, 154),
  },
}  # fmt: skip


class Measured(NamedTuple):
  """A finished run, and what `results.write` measured."""

  run: runs_lib.Run
  summary: Mapping[str, Any]


def score(summary: Mapping[str, Any]) -> float:
  """Returns test perplexity / the unigram model's; the threshold is SOLVED."""
  test = summary['splits']['test']
  return test['perplexity'] / test['unigram']


def report(*workdirs: pathlib.Path) -> str:
  """Draws the figures; returns the table and the paths.

  Raises:
    ValueError: a folder is not a finished run.
  """
  runs = [
    Measured(
      runs_lib.read_run(workdir, 'memory_language_model'),
      runs_lib.read_result(workdir, SUMMARY),
    )
    for workdir in workdirs
  ]
  folder = runs_lib.common_folder([run for run, _ in runs])
  title = ', '.join(sorted({run.config['corpus'] for run, _ in runs}))
  curves = [(run.name, perplexities(run.records)) for run, _ in runs]
  draw_curves(folder / CURVE, {title: curves}, metric='perplexity')
  draw_hops(
    folder / ATTENTION,
    {
      run.name: np.array(summary['splits']['test']['attention'])
      for run, summary in runs
    },
    x_label='position in memory, the newest word last',
  )
  lines = [
    table(runs),
    '',
    f'curve: {folder / CURVE}',
    f'attention: {folder / ATTENTION}',
  ]
  if len(runs) == 1:
    lines.append(f'checkpoints: {folder / runs_lib.CHECKPOINTS}')
  return '\n'.join(lines)


def table(runs: Sequence[Measured]) -> str:
  """Table 2: perplexity on valid and test, next to the paper's."""
  rows = [
    ['perplexity', 'hops', 'memory', 'valid', 'test',
     'unigram, test', 'uniform', 'paper, valid', 'paper, test'],
  ]  # fmt: skip
  for run, summary in runs:
    config, splits = run.config, summary['splits']
    hops, memory = config['num_hops'], config['memory_size']
    published = TABLE_2.get((config['corpus'], config['embedding_size']), {})
    rows.append(
      [
        run.name,
        str(hops),
        str(memory),
        f'{splits["valid"]["perplexity"]:.1f}',
        f'{splits["test"]["perplexity"]:.1f}',
        f'{splits["test"]["unigram"]:.1f}',
        f'{summary["uniform"]:,}',
        *map(str, published.get((hops, memory), ())),
      ]
    )
  return text_table(rows)


if __name__ == '__main__':
  sys.exit(runs_lib.main(report, __doc__, sys.argv[1:]))
