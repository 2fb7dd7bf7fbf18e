"""Draws speed against the number of devices."""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib

from matplotlib.figure import Figure

from rmc_jax.analysis.curves import COLOURS


def draw_scaling(
  path: pathlib.Path,
  panels: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]],
  *,
  marked: Mapping[tuple[str, str], int],
) -> None:
  """Draws the speed of n devices relative to one, a panel per model.

  Args:
    path: the PNG to write; its folder is created.
    panels: title -> label of a line -> (devices, speed relative to one).
    marked: (title, label) -> the number of devices marked with a dot.
  """
  figure = Figure(figsize=(4.6 * len(panels), 4.0), layout='constrained')
  rows = figure.subplots(1, len(panels), squeeze=False)
  for axes, (title, lines) in zip(rows[0], panels.items(), strict=True):
    for i, (label, points) in enumerate(lines.items()):
      colour = COLOURS[i % len(COLOURS)]
      axes.plot(*zip(*points, strict=True), color=colour, label=label)
      dot = marked[title, label]
      axes.plot([dot], [dict(points)[dot]], 'o', color=colour)
    most = max(points[-1][0] for points in lines.values())
    axes.plot([1, most], [1, most], color='0.4', linestyle=':', linewidth=1)
    axes.set_xscale('log', base=2)
    axes.set_yscale('log', base=2)
    axes.xaxis.set_major_formatter('{x:g}')
    axes.yaxis.set_major_formatter('{x:g}')
    axes.set(title=title, xlabel='devices', ylabel='times as fast as one')
    axes.grid(alpha=0.2)
    axes.legend(loc='upper left')
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=120)
