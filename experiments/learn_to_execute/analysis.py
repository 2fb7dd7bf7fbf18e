"""Did it work? Scores of runs, table 1 beside the paper's, and their curves.

  python -m experiments.learn_to_execute.analysis runs/learn_to_execute-quick

Several runs are drawn into one figure, in the folder that they have in common,
a panel for each task and size. Figure and table have the strongest run of each
core, as the paper has.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import json
import os
import pathlib
import sys
from typing import Any
from typing import NamedTuple

from rmc_jax.analysis.curves import draw_panels
from rmc_jax.analysis.table import text_table
from rmc_jax.errors import CONFIGURATION_ERROR
from rmc_jax.training.log import read_metrics

# The share of right characters that counts as learned.
SOLVED = 0.99
CURVES = 'figures/learning_curves.png'
SAMPLES = 'samples.txt'
# Whose runs can be read.
EXPERIMENTS = ('learn_to_execute', 'memorization')

# Name of a core -> what the paper calls it.
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
  """Accuracies of a run's evaluations, at the largest length and nesting.

  Attributes:
    best: the highest share of right characters, which the paper reports.
    last: that of the last evaluation.
    best_wholly_right: the highest share of answers without a wrong character.
    last_wholly_right: that of the last evaluation.
  """

  best: float
  last: float
  best_wholly_right: float
  last_wholly_right: float


def score(records: Sequence[Mapping[str, Any]]) -> Score:
  """Of the lines of a run's metrics.jsonl; SOLVED is the threshold for best."""
  evaluations = [line['eval'] for line in records if 'eval' in line]
  if not evaluations:
    raise ValueError('The run has no evaluation yet; train it further.')
  best_and_last = []
  for metric in ('accuracy', 'wholly_right'):
    values = [evaluation[metric] for evaluation in evaluations]
    best_and_last += [max(values), values[-1]]
  return Score(*best_and_last)


class Run(NamedTuple):
  """A run as its folder has it."""

  workdir: pathlib.Path
  config: Mapping[str, Any]
  records: Sequence[Mapping[str, Any]]

  @property
  def family(self) -> str:
    return FAMILIES[self.config['core']['name']]

  @property
  def problem(self) -> str:
    """Task and size: what must agree for two runs to be compared."""
    config = self.config
    problem = f'{config["task"]}, length {config["max_length"]}'
    if config['task'] not in ('copy', 'reverse', 'double'):
      problem += f', nesting {config["max_nesting"]}'
    if config['grammar'] != 'authors':
      problem += f', {config["grammar"]} grammar'
    return problem


def report(*workdirs: pathlib.Path) -> str:
  """Draws the runs, and says how each did and where everything is.

  Args:
    *workdirs: runs of `experiments.learn_to_execute.train`, in the order in
      which they are listed; one gets its figure, several their parent.

  Returns:
    A line a run, the table if there are several, the paths.

  Raises:
    ValueError, OSError: a folder is no run, or has no evaluation yet.
  """
  runs = [_read(workdir) for workdir in workdirs]
  lines = [_describe(run) for run in runs]
  if len(runs) > 1:
    lines += ['', table(runs), '']
  path = pathlib.Path(os.path.commonpath(workdirs)) / CURVES
  draw_panels(
    path,
    [
      (
        problem,
        [
          (f'{family}, {run.workdir.name}', run.records)
          for family, run in by_family.items()
        ],
      )
      for problem, by_family in strongest(runs).items()
    ],
    metric='accuracy',
  )
  lines.append(f'curves: {path}')
  if len(runs) == 1:
    lines.append(f'samples: {runs[0].workdir / SAMPLES}')
    lines.append(f'checkpoints: {runs[0].workdir / "checkpoints"}')
  return '\n'.join(lines)


def strongest(runs: Sequence[Run]) -> dict[str, dict[str, Run]]:
  """Problem -> family -> its run with the best evaluation, in a fixed order."""
  result: dict[str, dict[str, Run]] = {}
  for problem in sorted({run.problem for run in runs}):
    result[problem] = {}
    for family in FAMILIES.values():
      same = [
        run for run in runs if (run.problem, run.family) == (problem, family)
      ]
      if same:
        result[problem][family] = max(
          same, key=lambda run: score(run.records).best
        )
  return result


def table(runs: Sequence[Run]) -> str:
  """Table 1: for each core and problem the strongest run, beside the paper's.

  The paper's own is of length 5 and nesting 2, whatever the runs are.
  """
  chosen = strongest(runs)
  rows = [['best, % of characters', *chosen]]
  for family in FAMILIES.values():
    if not any(family in by_family for by_family in chosen.values()):
      continue
    cells = [family]
    for by_family in chosen.values():
      if family not in by_family:
        cells.append('unmeasured')
        continue
      run = by_family[family]
      cells.append(f'{100 * score(run.records).best:.1f}')
      published = TABLE_1.get(run.config['task'], {}).get(family)
      if published is not None:
        cells[-1] += f' (paper {published})'
    rows.append(cells)
  return text_table(rows)


def save_samples(workdir: pathlib.Path, text: str) -> None:
  """Keeps what the trained model answers to some samples, for a person."""
  (workdir / SAMPLES).write_text(text + '\n')


def main(arguments: Sequence[str], usage: str | None = __doc__) -> int:
  """Prints the report of the folders; returns the exit code."""
  if not arguments:
    print(usage, file=sys.stderr)
    return CONFIGURATION_ERROR
  try:
    print(report(*map(pathlib.Path, arguments)))
  except (OSError, ValueError) as error:
    print(f'analysis: {error}', file=sys.stderr)
    return CONFIGURATION_ERROR
  return 0


def _read(workdir: pathlib.Path) -> Run:
  saved = json.loads((workdir / 'config.json').read_text())
  if saved['experiment'] not in EXPERIMENTS:
    raise ValueError(
      f'{workdir} is a run of {saved["experiment"]}, expected one of '
      f'{" or ".join(EXPERIMENTS)}.'
    )
  return Run(workdir, saved['config'], read_metrics(workdir))


def _describe(run: Run) -> str:
  best, last, best_wholly_right, last_wholly_right = score(run.records)
  return (
    f'{run.workdir.name}: {run.family} on {run.problem}: '
    f'{last:.1%} of the characters right, best {best:.1%} '
    f'({"solved" if best >= SOLVED else "not solved"}: {SOLVED:.0%}); '
    f'{last_wholly_right:.1%} of the answers wholly, best '
    f'{best_wholly_right:.1%}'
  )


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
