"""Runs the Python of README.md and docs/ as printed; compares its output."""

import contextlib
import io
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [
  'README.md',
  'docs/language-modeling.md',
  'docs/tasks.md',
  'docs/using_the_core.md',
]
BLOCK = re.compile(r'^```(\w*)\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize('page', PAGES)
def test_python_on_the_page_prints_what_the_page_says(page):
  blocks = BLOCK.findall((ROOT / page).read_text())
  namespace, printed, compared = {'__name__': '__page__'}, None, 0
  for language, text in blocks:
    if language == 'python':
      output = io.StringIO()
      with contextlib.redirect_stdout(output):
        exec(compile(text, page, 'exec'), namespace)
      printed = output.getvalue()
    elif language == 'text' and printed is not None:
      assert printed == text
      printed, compared = None, compared + 1
  assert compared > 0


def test_links_lead_somewhere():
  pages = [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))]
  for page in pages:
    for target in re.findall(r'\]\(([^)#]+)[^)]*\)', page.read_text()):
      if '://' not in target:
        assert (page.parent / target).exists(), f'{page.name}: {target}'
