"""Tests rmc_jax/analysis/attention.py."""

import matplotlib.figure
import numpy as np

from rmc_jax.analysis import attention


def test_one_matrix_a_step_with_the_input_set_off(tmp_path, monkeypatch):
  sequences, steps, heads, slots, inputs = 2, 3, 5, 4, 1
  rng = np.random.default_rng(0)
  weights = rng.dirichlet(
      np.ones(slots + inputs), size=(sequences, steps, heads, slots)
  )
  saved = []
  original = matplotlib.figure.Figure.savefig

  def savefig(self, *args, **kwargs):
    saved.append(self)
    original(self, *args, **kwargs)

  monkeypatch.setattr(matplotlib.figure.Figure, 'savefig', savefig)
  path = tmp_path / 'figures' / 'attention.png'
  attention.draw_attention(
      path,
      weights,
      step_labels=[['a', 'b', 'c'], ['d', 'e', 'f']],
      marked=[2, 0],
      captions=['first', 'second'],
  )
  assert path.read_bytes().startswith(b'\x89PNG')
  rows = saved[0].subfigs
  assert [row.get_supxlabel() for row in rows] == ['first', 'second']
  for s, row in enumerate(rows):
    assert [axes.get_title() for axes in row.axes] == [
        ['a', 'b', 'c'],
        ['d', 'e', 'f'],
    ][s]
    red = [axes.title.get_color() != 'black' for axes in row.axes]
    assert red == [[False, False, True], [True, False, False]][s]
    for t, axes in enumerate(row.axes):
      image = np.ma.filled(axes.images[0].get_array(), np.nan)
      expected = weights[s, t].mean(axis=0)
      np.testing.assert_array_equal(image[:, :slots], expected[:, :slots])
      assert np.isnan(image[:, slots]).all()
      np.testing.assert_array_equal(image[:, slots + 1 :], expected[:, slots:])
