"""Scores Mini Pacman runs next to random play; draws learning curves.

  python -m experiments.mini_pacman.analysis runs/mini_pacman-quick \
      runs/mini_pacman-quick_lstm

draws several runs into one figure, in the first one's folder.
"""

import pathlib
import sys

from rmc_jax.analysis import runs as runs_lib
from rmc_jax.analysis.curves import draw_curves
from rmc_jax.analysis.runs import Run
from rmc_jax.analysis.runs import steps_per_update

LEARNED = 3.0  # times the return of random play, in `regular`
MAX_STEPS = 3000  # of an episode in RANDOM
# Mean return of 2,000 episodes of random play, standard error 0.02 to 0.3.
RANDOM = {
  'paper': {
    'regular': 6.7,
    'avoid': -18.6,
    'hunt': -19.9,
    'ambush': -20.6,
    'rush': 0.2,
  },
  'public': {
    'regular': 10.0,
    'avoid': -16.5,
    'hunt': -19.8,
    'ambush': -20.8,
    'rush': 0.3,
  },
}
CURVE = 'figures/learning_curve.png'
EPISODE = 'figures/episode.gif'


def score(run: Run) -> float:
  """Returns the mean return of the last evaluation.

  In `regular`, LEARNED times that of random play counts as learned.
  """
  return runs_lib.evaluations(run, 'episode_return')[-1]


def report(workdir: pathlib.Path, *others: pathlib.Path) -> str:
  """Draws the curves in `workdir`; returns scores and paths.

  Raises:
    ValueError: a folder is not a run, or has no evaluation yet.
  """
  folders = (workdir, *others)
  runs = [runs_lib.read_run(each, 'mini_pacman') for each in folders]
  games = {(run.config['mode'], run.config['rules']) for run in runs}
  if len(games) > 1:
    raise ValueError(f'The runs must be of one mode and rules. Got: {games}.')
  lines = [_describe(run) for run in runs]
  random = random_return(runs[0])
  draw_curves(
    workdir / CURVE,
    {
      f'Mini Pacman, {runs[0].config["mode"]}': [
        (
          f'{run.name} ({run.config["core"]["name"]}, {run.config["view"]})',
          run.records,
        )
        for run in runs
      ]
    },
    metric='episode_return',
    levels={} if random is None else {'random play': random},
    steps_per_update=[steps_per_update(run) for run in runs],
  )
  lines.append(f'curve: {workdir / CURVE}')
  if (workdir / EPISODE).exists():
    lines.append(f'episode: {workdir / EPISODE}')
  lines.append(f'checkpoints: {workdir / runs_lib.CHECKPOINTS}')
  return '\n'.join(lines)


def random_return(run: Run) -> float | None:
  """Returns the mean return of random play; None for other limits of steps."""
  if run.config['max_steps'] != MAX_STEPS:
    return None
  return RANDOM[run.config['rules']][run.config['mode']]


def _describe(run: Run) -> str:
  mean = score(run)
  last = [line for line in run.records if 'eval' in line][-1]
  steps = last['step'] * steps_per_update(run)
  text = (
    f'{run.name}: mean return {mean:.1f} in '
    f'{run.config["eval_episodes"]:,} episodes, mean length '
    f'{last["eval"]["episode_length"]:.0f}, after {steps:,} steps'
  )
  if (random := random_return(run)) is None:
    return text
  text += f'; random play {random:.1f}'
  if run.config['mode'] != 'regular':
    return text
  verdict = 'learned' if mean >= LEARNED * random else 'not learned'
  return f'{text} ({verdict}: {LEARNED:.0f} times as much)'


if __name__ == '__main__':
  sys.exit(runs_lib.main(report, __doc__, sys.argv[1:]))
