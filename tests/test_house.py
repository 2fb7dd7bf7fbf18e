"""The rules of the house that no tool of its own checks.

ruff and pyright, which launch/test.sh runs too, check the rest.
"""

import ast
import configparser
from importlib import metadata
import pathlib
import re
import shutil
import subprocess
import sys

from packaging.requirements import Requirement
from packaging.version import Version
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ('rmc_jax', 'experiments', 'launch', 'tests', 'docs')

# Modules of the package without a test file of the same name, and why.
WITHOUT_TWIN = {
  'cores/memory_matrix.py': 'the state of several cores, tested as such',
  'cores/projected_core.py': 'abstract; tests/test_unroll.py uses both halves',
  'parity/names.py': 'tests/parity/test_convert.py pins every name',
  'parity/ours.py': 'tests/parity/test_goldens.py runs it on every case',
  'parity/reference_runner.py': 'runs elsewhere; tests/parity/test_live.py',
  'parity/report.py': 'tests/parity/test_main.py reads what it writes',
  'types.py': 'names for annotations; nothing runs',
  'version.py': 'one string, which this file compares with the metadata',
}


def test_rooms_import_only_from_the_rooms_below():
  # setup.cfg holds the contracts. In a process of its own: import-linter takes
  # over the standard output, which pytest holds. Without its cache, which may
  # not know a module that has come since.
  out = run_python(
    'from importlinter.cli import lint_imports;'
    'exit(lint_imports(no_cache=True, no_logo=True))'
  )
  assert out.returncode == 0, out.stdout + out.stderr
  assert 'KEPT' in out.stdout


def test_import_is_light_and_defines_no_flags():
  program = """
import sys
import rmc_jax
heavy = {'tensorflow', 'tensorflow_datasets', 'matplotlib', 'gymnasium'}
print(sorted(heavy & set(sys.modules)))
from absl import flags
print([name for name in flags.FLAGS.flags_by_module_dict()
       if name.startswith('rmc_jax')])
"""
  out = run_python(program)
  assert out.stdout.split('\n') == ['[]', '[]', ''], out.stderr


def test_flags_are_defined_only_where_programs_start():
  for path in modules('rmc_jax'):
    if path.name != '__main__.py':
      names = set(imported_names(path))
      found = names & {'absl.flags', 'absl.app', 'ml_collections.config_flags'}
      assert not found, f'{path}: {found}: only experiments and __main__.py'


def test_only_parallel_says_pmap():
  for path in modules('rmc_jax', 'experiments'):
    if path != ROOT / 'rmc_jax/training/parallel.py':
      uses = 'jax.pmap' in imported_names(path) or any(
        isinstance(node, ast.Attribute) and node.attr == 'pmap'
        for node in ast.walk(tree(path))
      )
      assert not uses, f'{path}: pmap belongs in rmc_jax/training/parallel.py'


def test_every_import_is_of_a_declared_package():
  declared = set(requirements()) | {'rmc-jax'}
  providers = metadata.packages_distributions()
  allowed = set(sys.stdlib_module_names) | {'rmc_jax', 'experiments'}
  # These live in the environments of launch/parity.sh and launch/benchmark.sh.
  allowed |= {'tensorflow', 'sonnet', 'torch'}
  for path in modules('rmc_jax', 'experiments'):
    for name in imported_names(path):
      top = name.split('.')[0]
      owners = {normal(d) for d in providers.get(top, ())}
      assert top in allowed or owners & declared, (
        f'{path} imports {top}; setup.cfg declares no package that has it'
      )


@pytest.mark.parametrize('python', ['3.11', '3.12', '3.13', '3.14'])
def test_lock_satisfies_what_setup_cfg_declares(python):
  environment = {'python_version': python, 'python_full_version': python + '.0'}
  locked = {}
  for line in (ROOT / 'launch/requirements.txt').read_text().splitlines():
    if line and not line.startswith('#'):
      pin = Requirement(line)
      if pin.marker is None or pin.marker.evaluate(environment):
        (specifier,) = pin.specifier
        assert specifier.operator == '=='
        name = normal(pin.name)
        assert name not in locked, f'{name} is pinned twice'
        locked[name] = Version(specifier.version)
  for name, specifiers in requirements().items():
    assert name in locked, f'{name} is not in the lock: run launch/lock.sh'
    for specifier in specifiers:
      assert specifier.contains(locked[name], prereleases=True), name


def test_locks_name_no_index_and_no_machine():
  for path in (ROOT / 'launch').glob('*.txt'):
    for line in path.read_text().splitlines():
      assert not re.search(r'://|^-|@', line), f'{path}: {line}'


def test_installed_version_is_the_one_in_the_source():
  from rmc_jax import version

  assert metadata.version('rmc_jax') == version.__version__
  assert f'## {version.__version__}' in (ROOT / 'CHANGELOG.md').read_text()


def test_every_module_has_a_twin_test():
  package, tests = ROOT / 'rmc_jax', ROOT / 'tests'
  files = {str(p.relative_to(package)) for p in modules('rmc_jax')}
  tested = {
    str(p.relative_to(tests).with_name(p.name.removeprefix('test_')))
    for p in tests.rglob('test_*.py')
  }
  need = {f for f in files if not f.endswith(('__init__.py', '__main__.py'))}
  assert sorted(need - tested) == sorted(WITHOUT_TWIN)


def test_development_page_lists_the_rooms_there_are():
  page = (ROOT / 'docs/development.md').read_text().splitlines()
  rows = [line for line in page if line.startswith('|')]
  listed = set(re.findall(r'`rmc_jax/(\w+)', ' '.join(rows)))
  rooms = {p.parent.name for p in (ROOT / 'rmc_jax').glob('*/__init__.py')}
  files = {p.stem for p in (ROOT / 'rmc_jax').glob('*.py')}
  assert listed == rooms | files - {'__init__', 'version'}


def test_files_are_short_and_named_by_what_they_own():
  for path in texts():
    assert path.stem not in {'utils', 'util', 'helpers', 'common', 'misc'}, path
    if path.suffix in ('.py', '.sh'):
      lines = len(path.read_text().splitlines())
      assert lines <= 500, f'{path} has {lines} lines; 500 is the limit'


def test_nothing_unfinished_and_no_path_of_one_machine():
  # The brackets keep this file from being what it looks for.
  unfinished = re.compile(r'\b([T]ODO|[F]IXME|[X]XX)\b')
  machine = re.compile(r'(?<![\w.])/([r]oot|[h]ome|[w]ork|[U]sers)/')
  for path in texts():
    for number, line in enumerate(path.read_text().splitlines(), 1):
      assert not unfinished.search(line), f'{path}:{number}: {line}'
      assert not machine.search(line), f'{path}:{number}: {line}'


def run_python(program):
  return subprocess.run(
    [sys.executable, '-c', program], cwd=ROOT, capture_output=True, text=True
  )


def modules(*rooms):
  for room in rooms:
    yield from sorted((ROOT / room).rglob('*.py'))


def texts():
  """Every file of ours that people read, the ones at the top included."""
  suffixes = {'.py', '.sh', '.md', '.cfg', '.toml', '.txt'}
  files = [p for p in ROOT.iterdir() if p.is_file()]
  for room in (*ROOMS, '.ci'):
    files += (ROOT / room).rglob('*')
  return sorted(p for p in files if p.suffix in suffixes)


def tree(path):
  return ast.parse(path.read_text(), str(path))


def imported_names(path):
  """Dotted names of all that a file imports, wherever in it the import is."""
  for node in ast.walk(tree(path)):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{path}: imports here name the whole path'
      yield node.module
      yield from (f'{node.module}.{alias.name}' for alias in node.names)


def requirements():
  """Name -> version ranges of all that setup.cfg asks for, extras included."""
  config = configparser.ConfigParser()
  config.read(ROOT / 'setup.cfg')
  lines = config['options']['install_requires'].splitlines()
  for extra in config['options.extras_require'].values():
    lines += extra.splitlines()
  ranges = {}
  for line in filter(None, lines):
    requirement = Requirement(line)
    ranges.setdefault(normal(requirement.name), []).append(
      requirement.specifier
    )
  return ranges


def normal(name):
  return re.sub('[-_.]+', '-', name).lower()


@pytest.mark.skipif(
  not shutil.which('shellcheck'), reason='shellcheck is not installed'
)
def test_shellcheck_finds_nothing_in_any_script():
  scripts = [*sorted((ROOT / 'launch').glob('*.sh')), ROOT / '.ci/run']
  checked = subprocess.run(
    ['shellcheck', *map(str, scripts)],
    capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert checked.returncode == 0, checked.stdout
