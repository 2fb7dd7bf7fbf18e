"""Scores BoxWorld runs: solved levels, by boxes and distractors; draws curves.

  python -m experiments.box_world.analysis runs/box_world-quick \
      runs/box_world-quick_rmc

draws several runs into one figure, in the first one's folder.
"""

import pathlib
import sys

from rmc_jax.analysis import runs as runs_lib
from rmc_jax.analysis.curves import draw_curves
from rmc_jax.analysis.runs import Run
from rmc_jax.analysis.runs import steps_per_update
from rmc_jax.analysis.table import text_table

SOLVED = 0.9  # Share of new levels that counts as learned.
CURVE = 'figures/learning_curve.png'
EPISODE = 'figures/episode.gif'


def score(run: Run) -> float:
  """Returns the share solved in the last evaluation; see SOLVED."""
  return runs_lib.evaluations(run, 'solved')[-1]


def report(workdir: pathlib.Path, *others: pathlib.Path) -> str:
  """Draws the curves in `workdir`; returns tables and paths.

  Raises:
    ValueError: a folder is not a run, or has no evaluation yet.
  """
  folders = (workdir, *others)
  runs = [runs_lib.read_run(each, 'box_world') for each in folders]
  lines = [text for run in runs for text in _describe(run)]
  draw_curves(
    workdir / CURVE,
    {
      'BoxWorld, solved levels': [
        (f'{run.name} ({run.config["core"]["name"]})', run.records)
        for run in runs
      ]
    },
    metric='solved',
    levels={f'{SOLVED:.0%}': SOLVED},
    steps_per_update=[steps_per_update(run) for run in runs],
  )
  lines.append(f'curve: {workdir / CURVE}')
  if (workdir / EPISODE).exists():
    lines.append(f'episode: {workdir / EPISODE}')
  lines.append(f'checkpoints: {workdir / runs_lib.CHECKPOINTS}')
  return '\n'.join(lines)


def steps_to_solve(run: Run) -> list[tuple[int, int | None]]:
  """Returns (boxes, steps until SOLVED was reached, or None) of each stage.

  Steps of all environments since the start of the run, at the first evaluation
  of the stage that reaches the threshold.
  """
  stages = run.config['max_solution']
  found: list[tuple[int, int | None]] = []
  for stage, boxes in enumerate(stages):
    solved = [
      line['step'] * steps_per_update(run)
      for line in run.records
      if line.get('eval', {}).get('stage', 0) == stage
      and line.get('eval', {}).get('solved', 0) >= SOLVED
    ]
    found.append((boxes, solved[0] if solved else None))
  return found


def _describe(run: Run) -> list[str]:
  solved = score(run)
  last = [line for line in run.records if 'eval' in line][-1]
  steps = last['step'] * steps_per_update(run)
  _, reached = steps_to_solve(run)[-1]
  learned = reached is not None and solved >= SOLVED
  lines = [
    f'{run.name}: {solved:.1%} of {run.config["eval_episodes"]:,} new levels '
    f'solved ({"learned" if learned else "not learned"}: '
    f'{SOLVED:.0%}), mean return {last["eval"]["episode_return"]:.2f}, '
    f'after {steps:,} steps'
  ]
  for boxes, frames in steps_to_solve(run):
    up_to = f'at most {boxes} box{"es" if boxes > 1 else ""}'
    when = 'not yet' if frames is None else f'after {frames:,} steps'
    lines.append(f'  {up_to}: {SOLVED:.0%} solved {when}')
  groups = [
    [name.removeprefix('solved_').replace('_', ' '), f'{value:.1%}']
    for name, value in last['eval'].items()
    if name.startswith('solved_') and value is not None and value == value
  ]
  if groups:
    lines.append(text_table([['levels with', 'solved'], *groups]))
  return lines


if __name__ == '__main__':
  sys.exit(runs_lib.main(report, __doc__, sys.argv[1:]))
