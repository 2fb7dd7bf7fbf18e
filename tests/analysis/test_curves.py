"""Tests rmc_jax/analysis/curves.py."""

import matplotlib.figure
import numpy as np
import pytest

from rmc_jax.analysis import curves

RECORDS = [
  {'step': 10, 'train': {'accuracy': 0.25}},
  {'step': 20, 'train': {'accuracy': 0.5}, 'eval': {'accuracy': 0.4}},
  {'step': 30, 'train': {'accuracy': None}, 'eval': {'accuracy': 0.75}},
]


@pytest.fixture
def drawn(monkeypatch):
  """A list of the axes of the figures that are saved."""
  saved = []
  original = matplotlib.figure.Figure.savefig

  def savefig(self, *args, **kwargs):
    saved.append(self.axes)
    original(self, *args, **kwargs)

  monkeypatch.setattr(matplotlib.figure.Figure, 'savefig', savefig)
  return saved


def test_draws_the_records(tmp_path, drawn):
  path = tmp_path / 'figures' / 'curve.png'
  curves.draw_curves(
    path,
    {'Title': [('first', RECORDS), ('second', RECORDS[:2])]},
    metric='accuracy',
    levels={'chance': 0.125},
  )
  assert path.read_bytes().startswith(b'\x89PNG')
  ((axes,),) = drawn
  assert axes.get_title() == 'Title'
  train, evaluation, _, second, level = axes.get_lines()
  np.testing.assert_array_equal(train.get_xydata()[:2], [[10, 0.25], [20, 0.5]])
  assert np.isnan(train.get_ydata()[2])
  np.testing.assert_array_equal(
    evaluation.get_xydata(), [[20, 0.4], [30, 0.75]]
  )
  np.testing.assert_array_equal(second.get_xydata(), [[20, 0.4]])
  assert level.get_ydata()[0] == 0.125
  assert [t.get_text() for t in axes.get_legend().get_texts()] == [
    'first',
    'second',
  ]


def test_draws_against_steps_of_environments(tmp_path, drawn):
  curves.draw_curves(
    tmp_path / 'curve.png',
    {'Title': [('first', RECORDS), ('second', RECORDS[:2])]},
    metric='accuracy',
    steps_per_update=[40, 100],
  )
  ((axes,),) = drawn
  train, evaluation, _, second = axes.get_lines()
  np.testing.assert_array_equal(train.get_xdata(), [400, 800, 1200])
  np.testing.assert_array_equal(evaluation.get_xdata(), [800, 1200])
  np.testing.assert_array_equal(second.get_xdata(), [2000])
  assert axes.get_xlabel() == 'steps of all environments'


def test_draws_a_panel_per_title(tmp_path, drawn):
  path = tmp_path / 'panels.png'
  curves.draw_curves(
    path,
    {
      'one': [('a', RECORDS)],
      'two': [('b', RECORDS[:2]), ('c', RECORDS)],
    },
    metric='accuracy',
  )
  assert path.read_bytes().startswith(b'\x89PNG')
  ((one, two),) = drawn
  assert [axes.get_title() for axes in (one, two)] == ['one', 'two']
  assert [len(axes.get_lines()) for axes in (one, two)] == [2, 4]
  np.testing.assert_array_equal(two.get_lines()[1].get_xydata(), [[20, 0.4]])


def test_lines_are_sorted_by_number(tmp_path, drawn):
  path = tmp_path / 'figures' / 'lines.png'
  curves.draw_lines(
    path,
    [('a', {100: 2.0, 10: 5.0, 50: 3.0}), ('b', {10: 4.0})],
    x_label='length',
    y_label='perplexity',
  )
  assert path.read_bytes().startswith(b'\x89PNG')
  ((axes,),) = drawn
  first, second = axes.get_lines()
  np.testing.assert_array_equal(
    first.get_xydata(), [[10, 5.0], [50, 3.0], [100, 2.0]]
  )
  np.testing.assert_array_equal(second.get_xydata(), [[10, 4.0]])
  assert (axes.get_xlabel(), axes.get_ylabel()) == ('length', 'perplexity')
  assert axes.get_xscale() == 'log'
