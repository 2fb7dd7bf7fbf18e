"""Checks the layout of the repository where ruff and pyright cannot.

launch/test.sh runs ruff and pyright before the tests.
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
FOLDERS = ('rmc_jax', 'experiments', 'launch', 'tests', 'docs', '.ci')

# Modules of rmc_jax without a test file of the same name, and the reason.
WITHOUT_TWIN = {
  'cores/memory_matrix.py': 'tests/cores test the cores that use it',
  'cores/projected_core.py': 'abstract; tests/test_unroll.py uses both halves',
  'envs/box_world/constants.py': 'numbers; the tests there use them',
  'envs/box_world/types.py': 'test_presets.py there tests the checks',
  'envs/mini_pacman/constants.py': 'test_maze.py there pins the maze',
  'envs/mini_pacman/types.py': 'test_presets.py there tests the checks',
  'envs/types.py': 'one tuple',
  'parity/names.py': 'tests/parity/test_convert.py pins every name',
  'parity/ours.py': 'tests/parity/test_goldens.py runs it on every case',
  'parity/reference_runner.py': 'runs elsewhere; tests/parity/test_live.py',
  'parity/report.py': 'tests/parity/test_main.py reads its output',
  'rl/trajectory.py': 'one tuple',
  'types.py': 'only names for annotations',
  'version.py': 'one string, which this file compares with the metadata',
}


def test_import_contracts_of_setup_cfg_hold():
  # In a subprocess because import-linter replaces the standard output, which
  # pytest captures. Without its cache, which may lack a new module.
  out = run_python(
    'from importlinter.cli import lint_imports;'
    'exit(lint_imports(no_cache=True, no_logo=True))'
  )
  assert out.returncode == 0, out.stdout + out.stderr
  assert 'KEPT' in out.stdout


def test_import_loads_no_heavy_package_and_defines_no_flags():
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


def test_every_import_is_of_a_declared_package():
  declared = set(requirements()) | {'rmc-jax'}
  providers = metadata.packages_distributions()
  allowed = set(sys.stdlib_module_names) | {'rmc_jax', 'experiments'}
  # Installed by launch/parity.sh and launch/benchmark.sh, in environments of
  # their own.
  allowed |= {'tensorflow', 'sonnet', 'torch'}
  # Of the user's choice; no release allows the JAX of Python 3.12 and later.
  allowed |= {'gymnax'}
  for path in modules('rmc_jax', 'experiments'):
    for name in imported_packages(path):
      if name == 'tests' and path.name == 'environments_worker.py':
        continue  # It times their references.
      owners = {normalized(owner) for owner in providers.get(name, ())}
      assert name in allowed or owners & declared, (
        f'{path} imports {name}; setup.cfg declares no package that provides it'
      )


@pytest.mark.parametrize('python', ['3.11', '3.12', '3.13', '3.14'])
def test_lock_satisfies_setup_cfg(python):
  environment = {'python_version': python, 'python_full_version': python + '.0'}
  locked = {}
  for line in (ROOT / 'launch/requirements.txt').read_text().splitlines():
    if line and not line.startswith('#'):
      pin = Requirement(line)
      if pin.marker is None or pin.marker.evaluate(environment):
        (specifier,) = pin.specifier
        assert specifier.operator == '=='
        name = normalized(pin.name)
        assert name not in locked, f'{name} is pinned twice'
        locked[name] = Version(specifier.version)
  for name, specifiers in requirements(environment).items():
    assert name in locked, f'{name} is not in the lock: run launch/lock.sh'
    for specifier in specifiers:
      assert specifier.contains(locked[name], prereleases=True), name


def test_locks_name_no_index_and_no_path():
  for path in (ROOT / 'launch').glob('*.txt'):
    for line in path.read_text().splitlines():
      assert not re.search(r'://|^-|@', line), f'{path}: {line}'


def test_installed_version_equals_the_one_in_the_source():
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


def test_development_page_lists_every_package():
  page = (ROOT / 'docs/development.md').read_text()
  packages = {p.parent.name for p in (ROOT / 'rmc_jax').glob('*/__init__.py')}
  assert packages <= set(re.findall(r'`rmc_jax/(\w+)', page))


def test_files_are_short_and_named_after_their_contents():
  for path in texts():
    assert path.stem not in {'utils', 'util', 'helpers', 'common', 'misc'}, path
    if path.suffix in ('.py', '.sh'):
      lines = len(path.read_text().splitlines())
      assert lines <= 500, f'{path} has {lines} lines; 500 is the limit'


def test_no_file_contains_a_path_of_one_machine():
  # The brackets keep this file from matching itself.
  pattern = re.compile(r'(?<![\w.])/([r]oot|[h]ome|[w]ork|[U]sers)/')
  for path in texts():
    for number, line in enumerate(path.read_text().splitlines(), 1):
      assert not pattern.search(line), f'{path}:{number}: {line}'


@pytest.mark.skipif(
  not shutil.which('shellcheck'), reason='shellcheck is not installed'
)
def test_shellcheck_accepts_every_script():
  scripts = [*sorted((ROOT / 'launch').glob('*.sh')), ROOT / '.ci/run']
  checked = subprocess.run(
    ['shellcheck', *scripts], capture_output=True, text=True
  )
  assert checked.returncode == 0, checked.stdout


def run_python(program):
  return subprocess.run(
    [sys.executable, '-c', program], cwd=ROOT, capture_output=True, text=True
  )


def modules(*folders):
  for folder in folders:
    yield from sorted((ROOT / folder).rglob('*.py'))


def texts():
  """Every text file of the project."""
  suffixes = {'.py', '.sh', '.md', '.cfg', '.toml', '.txt', '.yaml'}
  files = [p for p in ROOT.iterdir() if p.is_file()]
  for folder in FOLDERS:
    files += (ROOT / folder).rglob('*')
  return sorted(p for p in files if p.suffix in suffixes)


def imported_packages(path):
  """Top-level names of all imports in a file, wherever in it they are."""
  for node in ast.walk(ast.parse(path.read_text(), str(path))):
    if isinstance(node, ast.Import):
      yield from (alias.name.partition('.')[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield node.module.partition('.')[0]


def requirements(environment=None):
  """Name -> version ranges of all requirements in setup.cfg, with extras.

  Args:
    environment: of the markers, such as the version of Python; None for this.
  """
  config = configparser.ConfigParser()
  config.read(ROOT / 'setup.cfg')
  lines = config['options']['install_requires'].splitlines()
  for extra in config['options.extras_require'].values():
    lines += extra.splitlines()
  ranges = {}
  for line in filter(None, lines):
    requirement = Requirement(line)
    if requirement.marker and not requirement.marker.evaluate(environment):
      continue
    name = normalized(requirement.name)
    ranges.setdefault(name, []).append(requirement.specifier)
  return ranges


def normalized(name):
  return re.sub('[-_.]+', '-', name).lower()
