"""Figure, page and table of what `experiments.babi.examples` writes."""

from collections.abc import Mapping
from collections.abc import Sequence
import json
import pathlib
from typing import Any

import numpy as np

from experiments.babi import page
from rmc_jax import files
from rmc_jax.analysis.hop_attention import draw_hop_attention
from rmc_jax.analysis.hop_attention import HopAttention
from rmc_jax.analysis.table import text_table

EXAMPLES = 'examples.json'
FIGURE = 'figures/attention.png'
PAGE = 'figures/examples.html'

FIGURE_2 = (1, 2, 16, 18)  # The tasks that the paper shows.
_MOST_STATEMENTS = 10  # in a panel, where a task has stories that short

Task = Mapping[str, Any]


def read(workdir: pathlib.Path) -> list[Task]:
  """Returns the tasks of a run; none for a run that wrote no examples."""
  path = workdir / EXAMPLES
  return json.loads(path.read_text()) if path.exists() else []


def table(tasks: Sequence[Task]) -> str:
  """Mean attention on the supporting statements of all test questions.

  A row per task, with '-' for files that do not name supporting statements, and
  for comparison the value of equal attention to all statements.
  """
  num_hops = len(tasks[0]['questions'][0]['empty_slots'])
  hops = [f'hop {k + 1}' for k in range(num_hops)]
  rows = [['attention on support', 'uniform', *hops]]
  for task in tasks:
    shares = [task['uniform'], *(task['on_supporting'] or [None] * num_hops)]
    rows.append(
      [
        f'{task["task"]}: {task["name"]}',
        *('-' if share is None else f'{share:.2f}' for share in shares),
        '(without softmax)' if task['linear'] else '',
      ]
    )
  return text_table(rows)


def draw(workdir: pathlib.Path, tasks: Sequence[Task]) -> list[str]:
  """Draws the figure and writes the page; returns lines with their paths."""
  # Other tasks where the run has not all of the figure's.
  shown = sorted(tasks, key=lambda task: task['task'] not in FIGURE_2)
  shown = sorted(shown[: len(FIGURE_2)], key=lambda task: task['task'])
  draw_hop_attention(workdir / FIGURE, list(map(_panel, shown)))
  text = page.render(f'{workdir.name}: attention of each hop', tasks)
  files.atomic_write(workdir / PAGE, text.encode())
  return [f'attention: {workdir / FIGURE}', f'examples: {workdir / PAGE}']


def _panel(task: Task) -> HopAttention:
  """Returns the longest story that fits into a panel, else the shortest."""

  def fit(question):
    length = len(question['statements'])
    return length if length <= _MOST_STATEMENTS else -length

  chosen = max(task['questions'], key=fit)
  statements = chosen['statements']
  return HopAttention(
    title=f'{task["task"]}: {task["name"]}',
    caption=(
      f'{chosen["question"]}?\nAnswer: {chosen["answer"]}. '
      f'Prediction: {chosen["prediction"]} ({chosen["probability"]:.2f}).'
    ),
    statements=[each['text'] for each in statements],
    supporting=[each['supporting'] for each in statements],
    attention=np.array([each['attention'] for each in statements]),
  )
