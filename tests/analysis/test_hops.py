"""Tests rmc_jax/analysis/hops.py."""

import matplotlib.figure
import numpy as np

from rmc_jax.analysis.hops import draw_hops


def test_draws_a_row_per_hop_scaled_to_its_largest_weight(
  tmp_path, monkeypatch
):
  figures = []
  savefig = matplotlib.figure.Figure.savefig
  monkeypatch.setattr(
    matplotlib.figure.Figure,
    'savefig',
    lambda self, *args, **kwargs: (
      figures.append(self) or savefig(self, *args, **kwargs)
    ),
  )
  weights = np.array([[0.1, 0.4, 0.5], [0.25, 0.25, 0.5]])
  path = tmp_path / 'figures' / 'attention.png'
  panels = {'a': weights, 'b': weights[:1, :2]}
  draw_hops(path, panels, x_label='position')
  assert path.read_bytes().startswith(b'\x89PNG')
  first, second = figures[0].axes
  np.testing.assert_allclose(
    first.images[0].get_array(), [[0.2, 0.8, 1], [0.5, 0.5, 1]]
  )
  # Position 1 is on the left and hop 1 on top.
  assert first.images[0].get_extent() == [0.5, 3.5, 2.5, 0.5]
  assert second.images[0].get_extent() == [0.5, 2.5, 1.5, 0.5]
  assert [axes.get_title() for axes in (first, second)] == ['a', 'b']
  assert first.get_xlabel() == 'position'
