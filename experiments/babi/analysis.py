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
from rmc_jax.analysis import runs as runs_lib
from rmc_jax.analysis.curves import draw_curves
from rmc_jax.analysis.table import text_table

EXPERIMENTS = 'babi', 'babi_memory_network', 'babi_recurrent'
FAILED = 0.05  # Test error above which a task counts as failed.
ERRORS = 'errors.json'
CURVE = 'figures/learning_curve.png'

NAMES = (
  '1 supporting fact', '2 supporting facts', '3 supporting facts',
  '2 argument relations', '3 argument relations', 'yes/no questions',
  'counting', 'lists/sets', 'simple negation', 'indefinite knowledge',
  'basic coreference', 'conjunction', 'compound coreference',
  'time reasoning', 'basic deduction', 'basic induction',
  'positional reasoning', 'size reasoning', 'path finding',
  "agent's motivation",
)  # fmt: skip
# Sukhbaatar et al. 2015, table 1: preset -> test error of each task in percent,
# with 1,000 training questions per task.
TABLE_1 = {
  'facts': (
    0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 15.0, 9.0, 0.0, 2.0,
    0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 35.0, 5.0, 64.0, 0.0,
  ),
  'heuristic': (
    0.1, 42.8, 76.4, 40.3, 16.3, 51.0, 36.1, 37.8, 35.9, 68.7,
    30.0, 10.1, 19.7, 18.3, 64.8, 50.5, 50.9, 51.3, 100.0, 3.6,
  ),
  'bow': (
    0.6, 17.6, 71.0, 32.0, 18.3, 8.7, 23.5, 11.4, 21.1, 22.8,
    4.1, 0.3, 10.5, 1.3, 24.3, 52.0, 45.4, 48.1, 89.7, 0.1,
  ),
  'pe': (
    0.1, 21.6, 64.2, 3.8, 14.1, 7.9, 21.6, 12.6, 23.3, 17.4,
    4.3, 0.3, 9.9, 1.8, 0.0, 52.1, 50.1, 13.6, 87.4, 0.0,
  ),
  'pe_ls': (
    0.2, 12.8, 58.8, 11.6, 15.7, 8.7, 20.3, 12.7, 17.0, 18.6,
    0.0, 0.1, 0.3, 2.0, 0.0, 1.6, 49.0, 10.1, 85.6, 0.0,
  ),
  'pe_ls_rn': (
    0.0, 8.3, 40.3, 2.8, 13.1, 7.6, 17.3, 10.0, 13.2, 15.1,
    0.9, 0.2, 0.4, 1.7, 0.0, 1.3, 51.0, 11.1, 82.8, 0.0,
  ),
  'joint_1_hop': (
    0.8, 62.0, 76.9, 22.8, 11.0, 7.2, 15.9, 13.2, 5.1, 10.6,
    8.4, 0.4, 6.3, 36.9, 46.4, 47.4, 44.4, 9.6, 90.7, 0.0,
  ),
  'joint_2_hops': (
    0.0, 15.6, 31.6, 2.2, 13.4, 2.3, 25.4, 11.7, 2.0, 5.0,
    1.2, 0.0, 0.2, 8.1, 0.5, 51.3, 41.2, 10.3, 89.9, 0.1,
  ),
  'joint_3_hops': (
    0.1, 14.0, 33.1, 5.7, 14.8, 3.3, 17.9, 10.1, 3.1, 6.6,
    0.9, 0.3, 1.4, 8.2, 0.0, 3.5, 44.5, 9.2, 90.2, 0.0,
  ),
  'joint_ls_rn': (
    0.0, 11.4, 21.9, 13.4, 14.4, 2.8, 18.3, 9.3, 1.9, 6.5,
    0.3, 0.1, 0.2, 6.9, 0.0, 2.7, 40.4, 9.4, 88.0, 0.0,
  ),
  'joint_layerwise': (
    0.1, 18.8, 31.7, 17.5, 12.9, 2.0, 10.1, 6.1, 1.5, 2.6,
    3.3, 0.0, 0.5, 2.0, 1.8, 51.0, 42.6, 9.2, 90.6, 0.2,
  ),
}  # fmt: skip

Member = Mapping[str, Any]


def score(members: Sequence[Member]) -> dict[int, float]:
  """Returns task -> test error of the selected member.

  A task has failed above FAILED.
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
  header, columns = ['test error, %'], []
  for run, each in zip(runs, members, strict=True):
    paper = (
      TABLE_1.get(str(run.preset)) if run.config['version'] == 'en' else None
    )
    header += [f'{run.name} (all restarts)', *(['paper'] if paper else [])]
    columns.append((score(each), _ranges(each), paper))
  tasks = sorted({task for selected, _, _ in columns for task in selected})
  rows = [header]
  for task in tasks:
    row = [f'{task}: {NAMES[task - 1]}']
    for selected, ranges, paper in columns:
      low, high = ranges.get(task, (np.nan, np.nan))
      row.append(
        f'{100 * selected.get(task, np.nan):.1f} '
        f'({100 * low:.1f} to {100 * high:.1f})'
      )
      row += [f'{paper[task - 1]:.1f}'] if paper else []
    rows.append(row)
  means, failures = ['mean'], ['failed (> 5 %)']
  for selected, _, paper in columns:
    means.append(f'{100 * np.mean(list(selected.values())):.1f}')
    failures.append(str(sum(error > FAILED for error in selected.values())))
    if paper:
      published = [paper[task - 1] for task in selected]
      means.append(f'{np.mean(published):.1f}')
      failures.append(str(sum(error > 100 * FAILED for error in published)))
  return text_table([*rows, means, failures])


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
