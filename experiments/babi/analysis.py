"""Scores memory networks on bAbI: table 1, next to the paper's, and figure 2.

  python -m experiments.babi.analysis runs/babi-pe_ls_rn

Several runs share a table and a figure, in their common folder; attention is of
one run.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import json
import pathlib
import sys
from typing import Any

import numpy as np

from experiments.babi import hops
from experiments.babi import published
from rmc_jax.analysis import runs as runs_lib
from rmc_jax.analysis.curves import draw_curves
from rmc_jax.analysis.table import text_table

EXPERIMENTS = 'babi', 'babi_memory_network', 'babi_recurrent'
FAILED = 0.05  # Test error above which a task counts as failed.
ERRORS = 'errors.json'
CURVE = 'figures/learning_curve.png'

Member = Mapping[str, Any]


def score(members: Sequence[Member]) -> dict[int, float]:
  """Returns task -> test error of the selected member.

  A task fails if its error exceeds FAILED.
  """
  return {
    int(task): error
    for index in select(members).values()
    for task, error in members[index]['test_error'].items()
  }


def select(members: Sequence[Member]) -> dict[str, int]:
  """Returns set -> index of the member with the lowest training error.

  Among equal training errors, often 0, the lowest training loss counts. Test
  errors play no part in the selection.
  """
  best: dict[str, int] = {}
  for index in sorted(range(len(members)), key=lambda m: _fit(members[m])):
    best.setdefault(members[index]['set'], index)
  return best


def _fit(member: Member) -> tuple[float, float]:
  return member['train_error'], member['train_loss']


def report(*workdirs: pathlib.Path) -> str:
  """Draws learning curves and attention, and describes the errors.

  Args:
    *workdirs: finished runs of EXPERIMENTS.

  Returns:
    A table with a row per task, for one run also `hops.table`, and the paths.

  Raises:
    ValueError: a folder is not a finished run.
  """
  runs = [runs_lib.read_run(workdir, *EXPERIMENTS) for workdir in workdirs]
  members = [_read(workdir) for workdir in workdirs]
  path = runs_lib.common_folder(runs) / CURVE
  curves = [(run.name, _mean_over_members(run.records)) for run in runs]
  draw_curves(path, {'mean over members': curves}, metric='accuracy')
  tables, paths = [table(runs, members), ''], [f'curve: {path}']
  if len(runs) == 1:
    (workdir,) = workdirs
    if examples := hops.read(workdir):
      tables += [hops.table(examples), '']
      paths += hops.draw(workdir, examples)
    paths.append(f'checkpoints: {workdir / runs_lib.CHECKPOINTS}')
  return '\n'.join([*tables, *paths])


def table(
  runs: Sequence[runs_lib.Run], members: Sequence[Sequence[Member]]
) -> str:
  """Test error per task in percent: selected (lowest to highest), paper."""
  scores = list(map(score, members))
  tasks = sorted({task for errors in scores for task in errors})
  labels = [f'{task}: {published.NAMES[task - 1]}' for task in tasks]
  columns = [['test error, %', *labels, 'mean', 'failed (> 5 %)']]
  for run, each, errors in zip(runs, members, scores, strict=True):
    ranges = _ranges(each)
    columns.append(
      [
        f'{run.name} (all restarts)',
        *(_cell(errors[t], *ranges[t]) if t in errors else '-' for t in tasks),
        f'{100 * np.mean(list(errors.values())):.1f}',
        str(sum(error > FAILED for error in errors.values())),
      ]
    )
    columns += _paper_column(run, errors, tasks)
  return text_table(list(map(list, zip(*columns, strict=True))))


def _cell(error: float, low: float, high: float) -> str:
  return f'{100 * error:.1f} ({100 * low:.1f} to {100 * high:.1f})'


def _paper_column(
  run: runs_lib.Run, errors: Mapping[int, float], tasks: Sequence[int]
) -> list[list[str]]:
  """Returns one column, or none for a run that the paper does not have."""
  preset = str(run.preset)
  version = 'en-10k' if preset.endswith('_10k') else 'en'
  if preset not in published.SUMMARY or run.config['version'] != version:
    return []
  mean, failed = published.SUMMARY[preset]
  paper = (published.TABLE_1 | published.LISTED).get(preset)
  if paper is None:
    cells, header = [''] * len(tasks), 'paper, 20 tasks'
  else:
    header = 'listed' if preset in published.LISTED else 'paper'
    cells = [f'{paper[task - 1]:.1f}' for task in tasks]
    if len(errors) < len(paper):
      own = [paper[task - 1] for task in errors]
      mean, failed = np.mean(own), sum(error > 100 * FAILED for error in own)
  return [[header, *cells, f'{mean:.1f}', str(failed)]]


def _ranges(members: Sequence[Member]) -> dict[int, tuple[float, float]]:
  """Returns task -> lowest and highest test error over the restarts."""
  errors: dict[int, list[float]] = {}
  for member in members:
    for task, error in member['test_error'].items():
      errors.setdefault(int(task), []).append(error)
  return {task: (min(each), max(each)) for task, each in errors.items()}


def _read(workdir: pathlib.Path) -> list[Member]:
  path = workdir / ERRORS
  if not path.exists():
    raise ValueError(
      f'{workdir} has no {ERRORS}, which a run writes at its end; train it '
      'further.'
    )
  return json.loads(path.read_text())


def _mean_over_members(records: Sequence[Mapping[str, Any]]) -> list[dict]:
  """Returns the lines of a log with the mean accuracy over members."""
  return [
    {
      'step': line['step'],
      **{
        group: {'accuracy': float(np.mean(line[group]['accuracy']))}
        for group in ('train', 'eval')
        if group in line
      },
    }
    for line in records
  ]


if __name__ == '__main__':
  sys.exit(runs_lib.main(report, __doc__, sys.argv[1:]))
