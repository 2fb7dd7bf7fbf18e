"""Scores programs and memorization runs: table 1, learning curves.

  python -m experiments.learn_to_execute.analysis runs/learn_to_execute-quick

Several runs are drawn into one figure, in their common folder, with a panel for
each task and size. Like the paper, figure and table show the best run of each
core.
"""

from collections.abc import Sequence
import pathlib
import sys
from typing import NamedTuple

from rmc_jax.analysis import runs as runs_lib
from rmc_jax.analysis.curves import draw_curves
from rmc_jax.analysis.runs import Run
from rmc_jax.analysis.table import text_table

SOLVED = 0.99  # Accuracy per character that counts as learned.
CURVES = 'figures/learning_curves.png'
SAMPLES = 'samples.txt'
MEMORIZATION = ('copy', 'reverse', 'double')

# Name of a core -> its name in the paper.
FAMILIES = {
  'lstm': 'LSTM',
  'lstm_bank': 'EntNet',
  'dnc': 'DNC',
  'relational_memory': 'RMC',
  'paper_relational_memory': 'RMC, as printed',
  'entity_network': 'EntNet cell',
}
# Santoro et al. 2018, table 1: task -> test accuracy per character, in percent.
TABLE_1 = {
  'addition': {'LSTM': 99.8, 'EntNet': 98.4, 'DNC': 99.4, 'RMC': 99.9},
  'algebra_control': {'LSTM': 97.4, 'EntNet': 98.0, 'DNC': 83.8, 'RMC': 99.6},
  'program': {'LSTM': 66.1, 'EntNet': 73.4, 'DNC': 69.5, 'RMC': 79.0},
  'copy': {'LSTM': 99.8, 'EntNet': 91.8, 'DNC': 100.0, 'RMC': 100.0},
  'reverse': {'LSTM': 99.7, 'EntNet': 100.0, 'DNC': 100.0, 'RMC': 100.0},
  'double': {'LSTM': 99.7, 'EntNet': 62.3, 'DNC': 100.0, 'RMC': 99.8},
}


class Score(NamedTuple):
  """Accuracies at the largest length and nesting, best and last evaluation."""

  best: float  # per character, which the paper reports
  last: float
  best_sequence: float  # share of answers without a wrong character
  last_sequence: float


def score(run: Run) -> Score:
  """Returns the accuracies of a run; the threshold of `best` is SOLVED."""
  characters = runs_lib.evaluations(run, 'accuracy')
  sequences = runs_lib.evaluations(run, 'sequence_accuracy')
  return Score(max(characters), characters[-1], max(sequences), sequences[-1])


def report(*workdirs: pathlib.Path) -> str:
  """Draws the figure; returns scores, a table of several runs, and paths.

  Raises:
    ValueError: a folder is not a run, or has no evaluation yet.
  """
  runs = [
    runs_lib.read_run(each, 'learn_to_execute', 'memorization')
    for each in workdirs
  ]
  lines = [_describe(run) for run in runs]
  if len(runs) > 1:
    lines += ['', table(runs), '']
  path = runs_lib.common_folder(runs) / CURVES
  panels = {
    problem: [
      (f'{family}, {run.name}', run.records)
      for family, run in by_family.items()
    ]
    for problem, by_family in best_runs(runs).items()
  }
  draw_curves(path, panels, metric='accuracy')
  lines.append(f'curves: {path}')
  if len(runs) == 1:
    lines.append(f'samples: {runs[0].workdir / SAMPLES}')
    lines.append(f'checkpoints: {runs[0].workdir / runs_lib.CHECKPOINTS}')
  return '\n'.join(lines)


def best_runs(runs: Sequence[Run]) -> dict[str, dict[str, Run]]:
  """Returns problem -> family -> the run with the best accuracy, sorted."""
  result: dict[str, dict[str, Run]] = {}
  for problem in sorted({_problem(run) for run in runs}):
    result[problem] = {}
    for family in FAMILIES.values():
      same = [r for r in runs if (_problem(r), _family(r)) == (problem, family)]
      if same:
        result[problem][family] = max(same, key=lambda run: score(run).best)
  return result


def table(runs: Sequence[Run]) -> str:
  """Table 1: the best run of each core on each problem, next to the paper's.

  The paper's numbers are for length 5 and nesting 2, whatever the runs are.
  """
  best = best_runs(runs)
  rows = [['best, % of characters', *best]]
  for family in FAMILIES.values():
    if not any(family in by_family for by_family in best.values()):
      continue
    cells = [family]
    for by_family in best.values():
      if family not in by_family:
        cells.append('unmeasured')
        continue
      run = by_family[family]
      cells.append(f'{100 * score(run).best:.1f}')
      published = TABLE_1.get(run.config['task'], {}).get(family)
      if published is not None:
        cells[-1] += f' (paper {published})'
    rows.append(cells)
  return text_table(rows)


def _family(run: Run) -> str:
  return FAMILIES[run.config['core']['name']]


def _problem(run: Run) -> str:
  """Task and size, which must agree for two runs to be compared."""
  config = run.config
  problem = f'{config["task"]}, length {config["max_length"]}'
  if config['task'] not in MEMORIZATION:
    problem += f', nesting {config["max_nesting"]}'
  if config['grammar'] != 'authors':
    problem += f', {config["grammar"]} grammar'
  return problem


def _describe(run: Run) -> str:
  best, last, best_sequence, last_sequence = score(run)
  return (
    f'{run.name}: {_family(run)} on {_problem(run)}: accuracy {last:.1%} of '
    f'characters, best {best:.1%} '
    f'({"solved" if best >= SOLVED else "not solved"}: {SOLVED:.0%}); sequence '
    f'accuracy {last_sequence:.1%}, best {best_sequence:.1%}'
  )


if __name__ == '__main__':
  sys.exit(runs_lib.main(report, __doc__, sys.argv[1:]))
