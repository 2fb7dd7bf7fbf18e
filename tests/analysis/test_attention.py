"""Tests rmc_jax/analysis/attention.py."""

import matplotlib.figure
import numpy as np
import pytest

from rmc_jax.analysis import attention


@pytest.fixture
def saved(monkeypatch):
  """A list of the figures that are saved."""
  figures = []
  original = matplotlib.figure.Figure.savefig

  def savefig(self, *args, **kwargs):
    figures.append(self)
    original(self, *args, **kwargs)

  monkeypatch.setattr(matplotlib.figure.Figure, 'savefig', savefig)
  return figures


def test_draws_a_matrix_per_step_with_a_gap_before_the_input(tmp_path, saved):
  sequences, steps, heads, slots, inputs = 2, 3, 5, 4, 1
  rng = np.random.default_rng(0)
  weights = rng.dirichlet(
    np.ones(slots + inputs), size=(sequences, steps, heads, slots)
  )
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


def test_attention_trace_has_a_column_per_word(tmp_path, saved):
  steps, heads, slots, units = 3, 5, 2, 4
  rng = np.random.default_rng(0)
  weights = rng.dirichlet(np.ones(slots + 1), size=(steps, heads, slots))
  gates = {name: rng.uniform(size=(steps, slots, units)) for name in 'ab'}
  path = tmp_path / 'figures' / 'trace.png'
  attention.draw_attention_trace(path, ['x', 'y', 'z'], weights, gates)
  assert path.read_bytes().startswith(b'\x89PNG')
  above, below = saved[0].axes[:2]
  image = np.asarray(above.images[0].get_array())
  assert image.shape == (heads, steps)
  for head in range(heads):
    for step in range(steps):
      expected = weights[step, head, :, slots].mean()
      assert image[head, step] == pytest.approx(expected)
  for line, name in zip(below.get_lines(), 'ab', strict=True):
    expected = [gates[name][step].mean() for step in range(steps)]
    np.testing.assert_allclose(line.get_ydata(), expected)
  assert [t.get_text() for t in below.get_xticklabels()] == ['x', 'y', 'z']
