"""Tests rmc_jax/analysis/hop_attention.py."""

import matplotlib.figure
import numpy as np

from rmc_jax.analysis.hop_attention import draw_hop_attention
from rmc_jax.analysis.hop_attention import HopAttention


def make_story(index, num_statements, num_hops=3):
  rng = np.random.default_rng(index)
  return HopAttention(
    title=f'title {index}',
    caption=f'caption {index}',
    statements=[f'statement {index} {s}' for s in range(num_statements)],
    supporting=[s == index for s in range(num_statements)],
    attention=rng.dirichlet(np.ones(num_statements), num_hops).T,
  )


def test_draws_statements_as_rows_and_hops_as_columns(tmp_path, monkeypatch):
  figures = []
  original = matplotlib.figure.Figure.savefig

  def savefig(self, *args, **kwargs):
    figures.append(self)
    original(self, *args, **kwargs)

  monkeypatch.setattr(matplotlib.figure.Figure, 'savefig', savefig)
  stories = [make_story(i, 2 + 3 * i) for i in range(3)]
  path = tmp_path / 'figures' / 'attention.png'
  draw_hop_attention(path, stories)
  assert path.read_bytes().startswith(b'\x89PNG')
  assert len(figures[0].axes) == len(stories)
  for axes, story in zip(figures[0].axes, stories, strict=True):
    assert axes.get_title() == story.title
    assert axes.get_xlabel() == story.caption
    image = np.asarray(axes.images[0].get_array())
    np.testing.assert_array_equal(image, story.attention)
    assert axes.images[0].get_clim() == (0.0, 1.0)
    hops = [label.get_text() for label in axes.get_xticklabels()]
    assert hops == ['hop 1', 'hop 2', 'hop 3']
    for label, text, supporting in zip(
      axes.get_yticklabels(), story.statements, story.supporting, strict=True
    ):
      assert label.get_text() == ('* ' if supporting else '') + text
      assert label.get_fontweight() == ('bold' if supporting else 'normal')
    for text in axes.texts:
      k, s = text.get_position()
      assert text.get_text() == f'{story.attention[s, k]:.2f}'
    assert len(axes.texts) == story.attention.size
