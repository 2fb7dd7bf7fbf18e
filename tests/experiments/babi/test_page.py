"""Tests experiments/babi/page.py, the page in a browser too."""

from html.parser import HTMLParser
import re
import shutil
import subprocess

import pytest

from experiments.babi import page
from tests.experiments.babi.stored_examples import make_tasks

VOID = {'meta', 'br'}
CHROMIUM = next(
  filter(
    None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))
  ),
  None,
)
needs_chromium = pytest.mark.skipif(
  CHROMIUM is None, reason='no chromium or google-chrome is installed'
)


class Page(HTMLParser):
  """The sections of a page that are not hidden, and the texts of their parts.

  Attributes:
    shown: text of each visible section by tag: 'h2', 'dd', 'th', 'td', ...
    selected: the values of the selects, as text of the options.
    tags: all tags with their attributes.
  """

  def __init__(self, text):
    super().__init__()
    self.shown, self.tags, self.options = [], [], []
    self._open = []
    self.feed(text)
    self.close()
    assert not self._open, f'not closed: {self._open}'

  def handle_starttag(self, tag, attrs):
    attributes = dict(attrs)
    self.tags.append((tag, attributes))
    if tag in VOID:
      return
    self._open.append((tag, attributes))
    if tag == 'section' and 'hidden' not in attributes:
      self.shown.append({})
    if self._shows() and tag != 'section':
      self.shown[-1].setdefault(tag, []).append('')
    if tag == 'option':
      self.options.append('')

  def handle_endtag(self, tag):
    assert self._open.pop()[0] == tag

  def handle_data(self, data):
    if not self._open:
      return
    if self._open[-1][0] == 'option':
      self.options[-1] += data
    if self._shows():
      for tag, _ in self._open[self._section() + 1 :]:
        self.shown[-1][tag][-1] += data

  def _section(self):
    tags = [tag for tag, _ in self._open]
    return tags.index('section') if 'section' in tags else len(tags)

  def _shows(self):
    i = self._section()
    return i < len(self._open) and 'hidden' not in self._open[i][1]


def load(path, fragment=''):
  """Returns the page as a browser shows it."""
  dumped = subprocess.run(
    [
      CHROMIUM,
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      f'--user-data-dir={path.parent / "profile"}',
      '--virtual-time-budget=1000',  # Lets events of the page happen.
      '--dump-dom',
      path.as_uri() + fragment,
    ],
    capture_output=True,
    text=True,
    timeout=60,
    check=True,
  )
  return Page(dumped.stdout)


@pytest.fixture
def path(tmp_path):
  path = tmp_path / 'examples.html'
  path.write_text(page.render('run', make_tasks()), encoding='utf-8')
  return path


def test_page_shows_every_example_without_javascript(path):
  text = path.read_text()
  found = Page(text)
  assert [section['h2'] for section in found.shown] == [
    [f'Task {task}: name {task}, example {n}']
    for task, count in ((2, 3), (16, 2))
    for n in range(1, count + 1)
  ]
  first = found.shown[0]
  assert first['dd'] == [
    'what is 2 1?',
    'milk',
    'apple,milk\nwrong, probability 0.88',
  ]
  assert found.shown[1]['dd'][2].startswith('milk\nright')
  assert first['th'] == [
    'Statement', 'Support', 'Hop 1', 'Hop 2', 'statement 0 of 2 1',
    'statement 1 of 2 1', 'statement 2 of 2 1', 'Empty slots of the memory',
  ]  # fmt: skip
  assert first['td'] == [
    '', '0.00', '0.01', 'yes', '0.10', '0.01', '', '0.20', '0.01',
    '', '0.00', '0.25',
  ]  # fmt: skip
  assert 'tfoot' not in found.shown[1]  # Nothing on empty slots.


def test_page_needs_no_other_file_and_labels_its_parts(path):
  found = Page(path.read_text())
  ids = [attributes['id'] for _, attributes in found.tags if 'id' in attributes]
  assert len(ids) == len(set(ids))
  for tag, attributes in found.tags:
    assert not attributes.keys() & {'src', 'href', 'srcset'}
    assert tag not in {'link', 'img', 'iframe'}
    if tag == 'section':
      assert attributes['aria-labelledby'] in ids
    if tag == 'th':
      assert attributes['scope'] in {'row', 'col'}
  assert not re.search(r'url\(|@import|https?:', path.read_text())
  tables = [tag for tag, _ in found.tags if tag in ('table', 'caption')]
  assert tables == ['table', 'caption'] * 5


def test_text_is_escaped():
  evil = '</th><script>alert("&amp;")</script>'
  tasks = make_tasks()[:1]
  tasks[0]['name'] = evil
  asked = tasks[0]['questions'][0]
  asked['statements'][0]['text'] = evil
  asked.update(question=evil, answer=evil, prediction=evil)
  found = Page(page.render(evil, tasks))
  assert [tag for tag, _ in found.tags].count('script') == 1
  shown = found.shown[0]
  assert shown['h2'] == [f'Task 2: {evil}, example 1']
  assert shown['dd'][:2] == [f'{evil}?', evil]
  assert shown['dd'][2].startswith(evil)
  assert shown['th'][4] == evil
  assert found.options == [f'2: {evil}']


def test_shades_are_from_0_to_1():
  tasks = make_tasks()[:1]
  tasks[0]['linear'] = True
  tasks[0]['questions'][0]['statements'][0]['attention'] = [-3.0, 7.5]
  found = Page(page.render('run', tasks))
  styles = [a['style'] for _, a in found.tags if 'style' in a]
  assert styles[:2] == ['--p:0.0000', '--p:1.0000']
  assert found.shown[0]['td'][1:3] == ['-3.00', '7.50']
  assert 'without softmax' in found.shown[0]['p'][0]


@needs_chromium
@pytest.mark.parametrize(
  'fragment, question',
  [('', '2 1'), ('#task-16-example-2', '16 2'), ('#task-9-example-1', '2 1')],
)
def test_browser_shows_the_example_of_the_url(path, fragment, question):
  found = load(path, fragment)
  assert [section['dd'][0] for section in found.shown] == [
    f'what is {question}?'
  ]
  count = {'2': 3, '16': 2}[question.split()[0]]
  assert found.options[2:] == [
    f'{n}: what is {question.split()[0]} {n}?' for n in range(1, count + 1)
  ]
  (form,) = [attributes for tag, attributes in found.tags if tag == 'form']
  assert 'hidden' not in form


@needs_chromium
@pytest.mark.parametrize(
  'actions, question',
  [
    ([('task', '16')], '16 1'),
    ([('task', '16'), ('example', 'task-16-example-2')], '16 2'),
    ([('next', None)], '2 2'),
    ([('previous', None), ('previous', None)], '16 1'),
    ([('previous', None), ('next', None)], '2 1'),
  ],
)
def test_controls_choose_another_example(path, actions, question):
  steps = []
  for name, value in actions:
    control = f'document.getElementById("{name}")'
    if value is None:
      steps.append(f'{control}.click()')
    else:
      event = '.dispatchEvent(new Event("change"))'
      steps.append(f'{control}.value = "{value}"; {control}{event}')
  # A page handles a new fragment after the script has ended.
  calls = ''.join(
    f'setTimeout(() => {{ {step} }}, {100 * i});'
    for i, step in enumerate(steps, 1)
  )
  text = path.read_text().replace('</body>', f'<script>{calls}</script></body>')
  path.write_text(text)
  found = load(path)
  assert [section['dd'][0] for section in found.shown] == [
    f'what is {question}?'
  ]
  assert found.shown[0]['h2'][0].endswith(f'example {question.split()[1]}')
