"""Draws lines of several runs: learning curves, values by number."""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
from typing import Any
from typing import TypeAlias

from matplotlib.figure import Figure

# A colour-blind-safe colour for each run (Okabe and Ito 2008).
COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9')
_MOST_COLUMNS = 3

# A label, and the lines of metrics.jsonl.
LabelledRun: TypeAlias = tuple[str, Sequence[Mapping[str, Any]]]


def draw_curves(
  path: pathlib.Path,
  panels: Mapping[str, Sequence[LabelledRun]],
  *,
  metric: str,
  levels: Mapping[str, float] | None = None,
  steps_per_update: Sequence[int] | None = None,
) -> None:
  """Draws one metric against the number of updates, a panel per title.

  The faint line is training, the line with dots evaluation.

  Args:
    path: the PNG to write; its folder is created.
    panels: title -> runs.
    metric: name of the metric in 'train' and 'eval'.
    levels: label -> height of a dotted line in each panel, such as chance.
    steps_per_update: of each run in a panel, the steps of all environments in
      an update, to draw the metric against these steps.
  """
  columns = min(_MOST_COLUMNS, len(panels))
  rows = -(-len(panels) // columns)
  figure = Figure(figsize=(7.0 * columns, 4.2 * rows), layout='constrained')
  for i, (title, runs) in enumerate(panels.items(), 1):
    axes = figure.add_subplot(rows, columns, i)
    scales = steps_per_update or len(runs) * [1]
    _draw_panel(axes, title, runs, metric, levels or {}, scales)
    if steps_per_update:
      axes.set_xlabel('steps of all environments')
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=120)


def draw_lines(
  path: pathlib.Path,
  lines: Sequence[tuple[str, Mapping[int, float]]],
  *,
  x_label: str,
  y_label: str,
) -> None:
  """Draws values against positive numbers, on a logarithmic axis.

  Args:
    path: the PNG to write; its folder is created.
    lines: label and number -> value of each line.
    x_label: of the numbers.
    y_label: of the values.
  """
  figure = Figure(figsize=(7.0, 4.2), layout='constrained')
  axes = figure.add_subplot()
  for i, (label, values) in enumerate(lines):
    axes.plot(
      *zip(*sorted(values.items()), strict=True),
      color=COLOURS[i % len(COLOURS)],
      marker='o',
      markersize=3,
      label=label,
    )
  axes.set(xscale='log', xlabel=x_label, ylabel=y_label)
  axes.grid(alpha=0.2)
  axes.legend(loc='best')
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=120)


def _draw_panel(axes, title, runs, metric, levels, scales) -> None:
  for i, ((label, records), scale) in enumerate(zip(runs, scales, strict=True)):
    colour = COLOURS[i % len(COLOURS)]
    axes.plot(
      *_series(records, 'train', metric, scale), color=colour, alpha=0.3
    )
    axes.plot(
      *_series(records, 'eval', metric, scale),
      color=colour,
      marker='o',
      markersize=3,
      label=label,
    )
  for label, height in levels.items():
    axes.axhline(height, color='0.4', linestyle=':', linewidth=1)
    axes.annotate(
      label,
      (1.0, height),
      xycoords=('axes fraction', 'data'),
      ha='right',
      va='bottom',
      fontsize=8,
      color='0.3',
    )
  axes.set(title=title, xlabel='updates', ylabel=metric)
  axes.grid(alpha=0.2)
  axes.legend(loc='best')


def _series(records, group: str, metric: str, scale) -> tuple[list, list]:
  """Returns steps times `scale`, and values, of the lines with the metric."""
  lines = [line for line in records if metric in line.get(group, {})]
  values = [line[group][metric] for line in lines]
  steps = [scale * line['step'] for line in lines]
  return steps, [float('nan') if v is None else v for v in values]
