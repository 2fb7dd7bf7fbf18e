"""Did it work? The score of a run, its curve and its attention picture.

  python -m experiments.nth_farthest.analysis runs/nth_farthest-quick \
      runs/nth_farthest-quick_lstm

draws the runs into one learning curve, in the first one's folder.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import json
import pathlib
import sys
from typing import Any

import numpy as np

from rmc_jax.analysis.attention import draw_attention
from rmc_jax.analysis.curves import draw_curves
from rmc_jax.errors import CONFIGURATION_ERROR
from rmc_jax.training.log import read_metrics

# The share of right answers on fresh examples that counts as learned.
SOLVED = 0.9
CURVE = 'figures/learning_curve.png'
ATTENTION = 'figures/attention.png'
ATTENTION_DATA = 'figures/attention.npz'


def score(records: Sequence[Mapping[str, Any]]) -> float:
  """Accuracy of the last evaluation; SOLVED is the threshold."""
  accuracies = [r['eval']['accuracy'] for r in records if 'eval' in r]
  if not accuracies:
    raise ValueError('The run has no evaluation yet; train it further.')
  return accuracies[-1]


def plateau(num_objects: int) -> float:
  """The score of "the answer if it is m itself, else a guess": 2 / O.

  1/O of the answers are m itself; of the rest one in O - 1 is guessed right.
  Models stay there long: 25 % at the paper's size.
  """
  return 1 / num_objects + (1 - 1 / num_objects) / max(num_objects - 1, 1)


def report(workdir: pathlib.Path, *others: pathlib.Path) -> str:
  """Draws what the runs allow, and says in a few lines what there is.

  Args:
    workdir: a run of `experiments.nth_farthest.train`; gets the figures.
    *others: runs to draw beside it.

  Returns:
    Accuracy, then the paths of curve, attention picture and checkpoints.

  Raises:
    ValueError, OSError: a folder is no run, or has no evaluation yet.
  """
  runs = [workdir, *others]
  configs = [_read_config(run) for run in runs]
  records = [read_metrics(run) for run in runs]
  num_objects = configs[0]['num_objects']
  draw_curves(
    workdir / CURVE,
    [
      (f'{run.name} ({config["core"]["name"]})', lines)
      for run, config, lines in zip(runs, configs, records, strict=True)
    ],
    metric='accuracy',
    title=f'Nth {configs[0]["order"]}, {num_objects} vectors of '
    f'{configs[0]["num_features"]} features',
    levels={
      'chance': 1 / num_objects,
      'knows m itself, else guesses': plateau(num_objects),
    },
  )
  lines = [
    f'{run.name}: accuracy {score(lines):.1%} on '
    f'{config["eval_examples"]:,} fresh examples '
    f'({"solved" if score(lines) >= SOLVED else "not solved"}: '
    f'{SOLVED:.0%}; plateau {plateau(config["num_objects"]):.0%})'
    for run, config, lines in zip(runs, configs, records, strict=True)
  ]
  lines.append(f'curve: {workdir / CURVE}')
  if (workdir / ATTENTION_DATA).exists():
    draw_recorded_attention(workdir)
    lines.append(f'attention: {workdir / ATTENTION}')
  lines.append(f'checkpoints: {workdir / "checkpoints"}')
  return '\n'.join(lines)


def save_attention(workdir: pathlib.Path, **arrays) -> None:
  """Saves the arrays that `draw_recorded_attention` reads."""
  path = workdir / ATTENTION_DATA
  path.parent.mkdir(parents=True, exist_ok=True)
  on_host: dict[str, Any] = {k: np.asarray(v) for k, v in arrays.items()}
  np.savez(path, **on_host)


def draw_recorded_attention(workdir: pathlib.Path) -> None:
  """Draws figure 3 of the paper from what the training recorded.

  The file holds, for S sequences: attention [S, T, L, H, N, N + 1], labels
  [S, T], n, m, answer and prediction [S], and the order of the ranks.
  """
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
      f'{_ordinal(n + 1)} {data["order"]} from vector {m + 1}?  It is '
      f'{answer + 1}; the model says {prediction + 1}.'
      for n, m, answer, prediction in zip(
        data['n'],
        data['m'],
        data['answer'],
        data['prediction'],
        strict=True,
      )
    ],
  )


def _ordinal(number: int) -> str:
  suffix = {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')
  return f'{number}{"th" if number // 10 % 10 == 1 else suffix}'


def _read_config(workdir: pathlib.Path) -> dict[str, Any]:
  return json.loads((workdir / 'config.json').read_text())['config']


if __name__ == '__main__':
  folders = [pathlib.Path(argument) for argument in sys.argv[1:]]
  if not folders:
    print(__doc__, file=sys.stderr)
    sys.exit(CONFIGURATION_ERROR)
  try:
    print(report(*folders))
  except (OSError, ValueError) as error:
    print(f'analysis: {error}', file=sys.stderr)
    sys.exit(CONFIGURATION_ERROR)
