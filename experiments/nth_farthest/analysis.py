"""Scores Nth Farthest runs; draws learning curves and attention.

  python -m experiments.nth_farthest.analysis runs/nth_farthest-quick \
      runs/nth_farthest-quick_lstm

draws several runs into one figure, in the first one's folder.
"""

import pathlib
import sys

import numpy as np

from rmc_jax.analysis import runs as runs_lib
from rmc_jax.analysis.attention import draw_attention
from rmc_jax.analysis.curves import draw_curves
from rmc_jax.analysis.runs import Run

SOLVED = 0.9  # Accuracy on new examples that counts as learned.
CURVE = 'figures/learning_curve.png'
ATTENTION = 'figures/attention.png'
ATTENTION_DATA = 'figures/attention.npz'


def score(run: Run) -> float:
  """Returns the accuracy of the last evaluation; the threshold is SOLVED."""
  return runs_lib.evaluations(run, 'accuracy')[-1]


def plateau(num_objects: int) -> float:
  """Accuracy of "m itself if it is the answer, else a guess": 2 / O.

  1/O of the answers are m itself; a guess among the other O - 1 is right once
  in O - 1 times. Models stay there for long: 25 % at the paper's size.
  """
  return 1 / num_objects + (1 - 1 / num_objects) / max(num_objects - 1, 1)


def report(workdir: pathlib.Path, *others: pathlib.Path) -> str:
  """Draws the figures in `workdir`; returns accuracies and paths.

  Raises:
    ValueError: a folder is not a run, or has no evaluation yet.
  """
  folders = (workdir, *others)
  runs = [runs_lib.read_run(each, 'nth_farthest') for each in folders]
  lines = [_describe(run) for run in runs]
  config = runs[0].config
  title = (
    f'Nth {config["order"]}, {config["num_objects"]} vectors of '
    f'{config["num_features"]} features'
  )
  labelled = [
    (f'{run.name} ({run.config["core"]["name"]})', run.records) for run in runs
  ]
  draw_curves(
    workdir / CURVE,
    {title: labelled},
    metric='accuracy',
    levels={
      'chance': 1 / config['num_objects'],
      'm itself, else a guess': plateau(config['num_objects']),
    },
  )
  lines.append(f'curve: {workdir / CURVE}')
  if (workdir / ATTENTION_DATA).exists():
    _draw_attention(workdir)
    lines.append(f'attention: {workdir / ATTENTION}')
  lines.append(f'checkpoints: {workdir / runs_lib.CHECKPOINTS}')
  return '\n'.join(lines)


def _draw_attention(workdir: pathlib.Path) -> None:
  """Draws figure 3 of the paper from the arrays of `train.trace_attention`."""
  data = np.load(workdir / ATTENTION_DATA)
  draw_attention(
    workdir / ATTENTION,
    data['attention'][:, :, 0],  # [S, T, H, N, N + 1], the first block
    step_labels=[
      [f'vector {label + 1}' for label in row] for row in data['labels']
    ],
    marked=[
      int(np.argmax(row == m))
      for row, m in zip(data['labels'], data['m'], strict=True)
    ],
    captions=[
      f'{_ordinal(n + 1)} {data["order"]} from vector {m + 1}? Answer: '
      f'{answer + 1}; prediction: {prediction + 1}.'
      for n, m, answer, prediction in zip(
        data['n'], data['m'], data['answer'], data['prediction'], strict=True
      )
    ],
  )


def _describe(run: Run) -> str:
  accuracy = score(run)
  return (
    f'{run.name}: accuracy {accuracy:.1%} on '
    f'{run.config["eval_examples"]:,} new examples '
    f'({"solved" if accuracy >= SOLVED else "not solved"}: {SOLVED:.0%}; '
    f'plateau {plateau(run.config["num_objects"]):.0%})'
  )


def _ordinal(number: int) -> str:
  suffix = {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')
  return f'{number}{"th" if number // 10 % 10 == 1 else suffix}'


if __name__ == '__main__':
  sys.exit(runs_lib.main(report, __doc__, sys.argv[1:]))
