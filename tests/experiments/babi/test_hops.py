"""Tests experiments/babi/hops.py."""

import json

import numpy as np

from experiments.babi import hops
from tests.experiments.babi.stored_examples import K
from tests.experiments.babi.stored_examples import make_tasks


def test_reads_what_a_run_wrote(tmp_path):
  assert hops.read(tmp_path) == []
  (tmp_path / hops.EXAMPLES).write_text(json.dumps(make_tasks()))
  assert hops.read(tmp_path) == make_tasks()


def test_table_has_a_row_per_task_and_a_column_per_hop():
  first, second = make_tasks()
  second['linear'] = True
  third = first | {'on_supporting': None, 'uniform': None}
  assert hops.table([first, second, third]).splitlines() == [
    'attention on support  uniform  hop 1  hop 2',
    '2: name 2             0.20     0.02   0.50',
    '16: name 16           0.20     0.16   0.50   (without softmax)',
    '2: name 2             -        -      -',
  ]


def test_draws_the_tasks_of_the_papers_figure_first(tmp_path, monkeypatch):
  drawn = []
  monkeypatch.setattr(
    hops, 'draw_hop_attention', lambda path, stories: drawn.extend(stories)
  )
  (tmp_path / 'figures').mkdir()
  task = make_tasks()[0]
  tasks = [task | {'task': t} for t in (3, 7, 1, 16, 5, 18)]
  lines = hops.draw(tmp_path, tasks)
  assert lines == [
    f'attention: {tmp_path / hops.FIGURE}',
    f'examples: {tmp_path / hops.PAGE}',
  ]
  assert [story.title.split(':')[0] for story in drawn] == [
    '1',
    '3',
    '16',
    '18',
  ]


def test_panel_has_the_longest_story_that_fits(tmp_path, monkeypatch):
  drawn = []
  monkeypatch.setattr(
    hops, 'draw_hop_attention', lambda path, stories: drawn.append(stories[0])
  )
  (tmp_path / 'figures').mkdir()
  task = make_tasks()[0]
  lengths = [len(each['statements']) for each in task['questions']]
  assert lengths == [3, 4, 5]
  for most, expected in ((10, 5), (4, 4), (2, 3)):
    monkeypatch.setattr(hops, '_MOST_STATEMENTS', most)
    hops.draw(tmp_path, [task])
    assert drawn[-1].attention.shape == (expected, K)
  asked = task['questions'][0]
  assert drawn[-1].statements == [s['text'] for s in asked['statements']]
  assert drawn[-1].supporting == [False, True, False]
  np.testing.assert_array_equal(
    drawn[-1].attention, [s['attention'] for s in asked['statements']]
  )
  assert drawn[-1].caption == (
    'what is 2 1?\nAnswer: milk. Prediction: apple,milk (0.88).'
  )
