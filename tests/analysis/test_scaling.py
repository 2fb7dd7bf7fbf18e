"""Tests rmc_jax/analysis/scaling.py."""

import matplotlib.figure
import numpy as np

from rmc_jax.analysis import scaling


def test_draws_a_panel_per_model_and_a_dot_per_line(tmp_path, monkeypatch):
  saved = []
  original = matplotlib.figure.Figure.savefig

  def savefig(self, *args, **kwargs):
    saved.append(self.axes)
    original(self, *args, **kwargs)

  monkeypatch.setattr(matplotlib.figure.Figure, 'savefig', savefig)
  path = tmp_path / 'figures' / 'scaling.png'
  lines = {'A': [(1, 1.0), (2, 1.9), (4, 2.5)], 'B': [(1, 1.0), (2, 1.1)]}
  marked = {('one', 'A'): 2, ('one', 'B'): 1, ('two', 'A'): 4}
  scaling.draw_scaling(
    path, {'one': lines, 'two': {'A': lines['A']}}, marked=marked
  )
  assert path.read_bytes().startswith(b'\x89PNG')
  ((one, two),) = saved
  first, dot, second, other_dot, ideal = one.get_lines()
  np.testing.assert_array_equal(first.get_xydata(), lines['A'])
  np.testing.assert_array_equal(dot.get_xydata(), [[2, 1.9]])
  np.testing.assert_array_equal(second.get_xydata(), lines['B'])
  np.testing.assert_array_equal(other_dot.get_xydata(), [[1, 1.0]])
  np.testing.assert_array_equal(ideal.get_xydata(), [[1, 1], [4, 4]])
  assert [text.get_text() for text in one.get_legend().get_texts()] == [
    'A', 'B',
  ]  # fmt: skip
  np.testing.assert_array_equal(two.get_lines()[1].get_xydata(), [[4, 2.5]])
  assert two.get_title() == 'two'
