"""Draws where the hops of a memory network attend."""

from collections.abc import Mapping
import pathlib

from matplotlib.figure import Figure
import numpy as np


def draw_hops(
  path: pathlib.Path,
  panels: Mapping[str, np.ndarray],
  *,
  x_label: str,
) -> None:
  """Draws the attention of each hop to each position of the memory.

  As in figure 3 of Sukhbaatar et al. 2015: a row is a hop, the first on top,
  scaled so that its largest weight is white; no weight is black.

  Args:
    path: the PNG to write; its folder is created.
    panels: title -> mean attention [K, N].
    x_label: of the positions, whose numbers begin with 1.
  """
  figure = Figure(figsize=(5.5 * len(panels), 2.6), layout='constrained')
  rows = figure.subplots(1, len(panels), squeeze=False)
  for axes, (title, attention) in zip(rows[0], panels.items(), strict=True):
    hops, positions = attention.shape
    axes.imshow(
      attention / attention.max(axis=1, keepdims=True),
      vmin=0.0,
      vmax=1.0,
      cmap='gray',
      aspect='auto',
      interpolation='nearest',
      extent=(0.5, positions + 0.5, hops + 0.5, 0.5),
    )
    axes.set(title=title, xlabel=x_label, ylabel='hop')
    axes.set_yticks(range(1, hops + 1))
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=120)
