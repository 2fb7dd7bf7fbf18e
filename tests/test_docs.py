"""Tests README.md and docs/: examples run, links resolve, flags exist."""

import contextlib
import importlib.util
import io
import pathlib
import re

import pytest

from experiments import configuration
from launch import job

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))]
EXPERIMENTS = job.experiments()
CODE_BLOCK = re.compile(r'^```(\w*)\n(.*?)^```$', re.MULTILINE | re.DOTALL)
OTHER_PROGRAMS = ('docker ', 'gcloud ', 'kubectl ', 'sky ')


@pytest.mark.parametrize(
  'page',
  [page for page in PAGES if re.search(r'^```text$', page.read_text(), re.M)],
  ids=lambda page: page.stem,
)
def test_examples_print_the_output_on_the_page(page, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)  # Examples may write files.
  namespace, printed = {'__name__': '__page__'}, None
  for language, text in CODE_BLOCK.findall(page.read_text()):
    if language == 'python':
      if 'adapters.gymnax' in text and not importlib.util.find_spec('gymnax'):
        continue  # No release allows the JAX of Python 3.12 and later.
      output = io.StringIO()
      with contextlib.redirect_stdout(output):
        exec(compile(text, page.name, 'exec'), namespace)
      printed = output.getvalue()
    elif language == 'text' and printed is not None:
      assert printed == text
      printed = None


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_links_resolve(page):
  for target, anchor in re.findall(
    r'\]\(([^)#]*)(?:#([^)]*))?\)', page.read_text()
  ):
    if '://' in target:
      continue
    path = page.parent / target if target else page
    assert path.exists(), target
    if anchor:
      assert anchor in anchors(path.read_text()), f'{target}#{anchor}'


def anchors(text):
  """The anchors that Markdown renderers make of the headings."""
  headings = re.findall(r'^#+ (.*)$', text, re.MULTILINE)
  return {re.sub(r'[^\w -]', '', h).lower().replace(' ', '-') for h in headings}


def test_every_page_and_figure_is_linked():
  links = ' '.join(page.read_text() for page in PAGES)
  for path in (*PAGES[1:], *(ROOT / 'docs/figures').iterdir()):
    assert f'{path.name})' in links, path


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_flags_exist(page):
  known, config_fields = program_flags(), experiment_config_fields()
  for command in commands(page):
    for flag in re.findall(r'(?<![\w=-])--([a-z][\w.-]*)', command):
      if flag.startswith('config.'):
        assert flag.removeprefix('config.') in config_fields, command
      elif not flag.startswith('xla_'):
        assert flag.removeprefix('no-') in known, command


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_presets_and_sweeps_exist(page):
  sweeps = {
    name: importlib.import_module(f'experiments.{name}.sweep')
    for name in EXPERIMENTS
  }
  for command in commands(page):
    named = [
      sweeps[name] for name in EXPERIMENTS if re.search(rf'\b{name}\b', command)
    ] or sweeps.values()
    for preset in re.findall(r'--preset=(\w+)', command):
      assert any(preset in module.PRESETS for module in named), command
    for sweep in re.findall(r'--sweep=([a-z]\w+)', command):
      assert any(sweep in module.SWEEPS for module in named), command


def commands(page):
  """Lines of a page, with continued lines joined, except other programs'."""
  for line in page.read_text().replace('\\\n', ' ').splitlines():
    if not line.strip('` |').startswith(OTHER_PROGRAMS):
      yield re.sub(r'`(?:docker|gcloud|kubectl|sky|xpk) [^`]*`', '', line)


def program_flags():
  """Names of the flags that any command of this project defines."""
  flags = set()
  for folder in ('experiments', 'launch', 'rmc_jax'):
    for path in (ROOT / folder).rglob('*.py'):
      text = path.read_text()
      flags |= set(re.findall(r"""['"]--([\w-]+)""", text))
      flags |= set(re.findall(r"DEFINE_\w+\(\s*'(\w+)'", text))
  for path in (ROOT / 'launch').glob('*.sh'):
    flags |= set(re.findall(r'--([\w-]+)', path.read_text()))
  return flags


def experiment_config_fields():
  """Dotted names of the configuration fields of all experiments."""
  fields = set()
  for name in EXPERIMENTS:
    config = importlib.import_module(f'experiments.{name}.train').Config()
    fields |= set(configuration.fields(config))
  return fields


def test_readme_quotes_the_tables_of_docs():
  readme = PAGES[0].read_text()
  for section, page in (
    ('Equal to the original', 'parity'),
    ('Speed', 'performance'),
  ):
    source = rows((ROOT / f'docs/{page}.md').read_text())
    quoted = rows(readme.split(f'## {section}')[1].split('\n## ')[0])
    assert quoted
    for name, numbers in quoted.items():
      assert set(numbers) <= set(source[name]), name


def rows(text):
  """First cell -> numbers in the other cells, of the first such row."""
  result = {}
  for name, cells in re.findall(r'^\| (.*?) \| (.*) \|$', text, re.MULTILINE):
    numbers = re.findall(r'\d[\d.]*(?:e-?\d+)?', cells)
    if numbers and name not in ('case', 'size'):
      result.setdefault(name, numbers)
  return result


def test_launching_page_has_every_launcher():
  page = (ROOT / 'docs/launching.md').read_text()
  for path in (ROOT / 'launch').glob('*.py'):
    if '\ndef main(' in path.read_text():
      assert f'python -m launch.{path.stem} ' in page
