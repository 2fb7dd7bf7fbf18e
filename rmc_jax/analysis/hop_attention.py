"""Draws the attention of each hop of a memory network on a story."""

from collections.abc import Sequence
import pathlib
from typing import NamedTuple

from matplotlib.figure import Figure
import numpy as np


class HopAttention(NamedTuple):
  """One story, with S statements, and K hops.

  Attributes:
    title: above the panel.
    caption: below the panel.
    statements: [S], in the order of the story.
    supporting: [S] whether the statement supports the answer.
    attention: [S, K].
  """

  title: str
  caption: str
  statements: Sequence[str]
  supporting: Sequence[bool]
  attention: np.ndarray


def draw_hop_attention(
  path: pathlib.Path, stories: Sequence[HopAttention]
) -> None:
  """Draws a panel per story, with a row per statement and a column per hop.

  As in figure 2 of Sukhbaatar et al. 2015. White is 0, and the darkest blue 1.
  Supporting statements are bold, with a star.

  Args:
    path: the PNG to write; its folder is created.
    stories: the panels, two in a row.
  """
  columns = min(2, len(stories))
  lengths = [len(story.statements) for story in stories]
  heights = [
    max(lengths[i : i + columns]) for i in range(0, len(stories), columns)
  ]
  figure = Figure(
    # Inches; title, hops and caption take as much as five statements.
    figsize=(6.0 * columns, 0.22 * sum(n + 5 for n in heights)),
    layout='constrained',
  )
  grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
  for i, story in enumerate(stories):
    row, column = divmod(i, columns)
    _draw_story(figure.add_subplot(grid[row, column]), story)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=130)


def _draw_story(axes, story: HopAttention) -> None:
  num_statements, num_hops = story.attention.shape
  axes.imshow(story.attention, vmin=0.0, vmax=1.0, cmap='Blues', aspect='auto')
  for s in range(num_statements):
    for k in range(num_hops):
      value = story.attention[s, k]
      colour = 'white' if value > 0.5 else 'black'
      axes.text(
        k, s, f'{value:.2f}', ha='center', va='center', color=colour, fontsize=8
      )
  labels = [
    f'* {text}' if supporting else text
    for text, supporting in zip(story.statements, story.supporting, strict=True)
  ]
  axes.set_yticks(range(num_statements), labels, fontsize=8)
  for label, supporting in zip(
    axes.get_yticklabels(), story.supporting, strict=True
  ):
    label.set_fontweight('bold' if supporting else 'normal')
  axes.set_xticks(range(num_hops), [f'hop {k + 1}' for k in range(num_hops)])
  axes.tick_params(length=0, labeltop=True, labelbottom=False, labelsize=8)
  axes.set_title(story.title, fontsize=9, fontweight='bold')
  axes.set_xlabel(story.caption, fontsize=8)
