"""Tests launch/Dockerfile: that the files it copies are enough, and come first.

No image is built here.
"""

import configparser
import re
import runpy
import shutil
import subprocess
import sys

import pytest

from launch import job
from launch import kubernetes

DOCKERFILE = (job.ROOT / 'launch/Dockerfile').read_text()
IGNORED = (job.ROOT / '.dockerignore').read_text()


def steps():
  """The instructions, each with its words."""
  lines = [
    line.split()
    for line in DOCKERFILE.replace('\\\n', ' ').splitlines()
    if line and not line.startswith('#')
  ]
  return [(name, words) for name, *words in lines]


def until_set_up():
  """What is copied before the packages are installed: {folder: sources}."""
  copied = {}
  for name, words in steps():
    if name == 'RUN':
      assert 'launch/setup.sh' in words
      return copied
    if name == 'COPY':
      copied.setdefault(words[-1], []).extend(words[:-1])
  raise AssertionError('nothing is installed')


@pytest.fixture
def layer(tmp_path):
  """The folder in which the packages are installed."""
  for folder, sources in until_set_up().items():
    (tmp_path / folder).mkdir(exist_ok=True)
    for source in sources:
      shutil.copy(job.ROOT / source, tmp_path / folder)
  return tmp_path


def test_code_comes_after_the_packages(layer):
  code = [path.name for path in layer.rglob('*.py')]
  assert code == ['version.py']
  later = steps()[[name for name, _ in steps()].index('RUN') + 1 :]
  assert ('COPY', ['.', '.']) in later


@pytest.mark.parametrize('accelerator', ['cpu', 'cuda12', 'cuda13', 'tpu'])
def test_the_set_up_has_what_it_needs(layer, accelerator):
  assert ('ARG', ['ACCELERATOR=cpu']) in steps()
  ended = subprocess.run(
      [layer / 'launch/setup.sh', '--dry-run'],
      env={'PATH': '/usr/bin:/bin', 'ACCELERATOR': accelerator},
      capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert ended.returncode == 0, ended.stderr
  script = (layer / 'launch/setup.sh').read_text()
  named = re.findall(r'\$root/([\w./]+)', script)
  assert 'launch/find_python.sh' in named
  assert all((layer / name).exists() for name in named if name != '.venv')
  assert f'--editable {layer}[' in ended.stderr
  assert (f',{accelerator}]' in ended.stderr) == (accelerator != 'cpu')


def test_the_project_can_be_built_of_it(layer):
  build = (
    'from setuptools import build_meta; '
    'print(build_meta.prepare_metadata_for_build_editable("."))'
  )
  built = subprocess.run(
      [sys.executable, '-P', '-W', 'ignore', '-c', build],
      cwd=layer, capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert built.returncode == 0, built.stderr
  folder = layer / built.stdout.splitlines()[-1]
  version = runpy.run_path(str(job.ROOT / 'rmc_jax/version.py'))['__version__']
  assert f'\nVersion: {version}\n' in (folder / 'METADATA').read_text()


def test_its_python_is_supported():
  (image,) = [words[0] for name, words in steps() if name == 'FROM']
  version = re.fullmatch(r'python:(3\.\d+)-slim-\w+', image)[1]
  config = configparser.ConfigParser()
  config.read(job.ROOT / 'setup.cfg')
  named = f'Programming Language :: Python :: {version}'
  assert named in config['metadata']['classifiers'].splitlines()


def test_it_runs_as_the_user_that_kubernetes_expects():
  assert steps()[-1] == ('USER', [str(kubernetes.GROUP)])
  (made,) = [w for name, w in steps() if name == 'RUN' and 'useradd' in w]
  assert f'--uid={kubernetes.GROUP}' in made


def test_programs_are_found_in_any_folder():
  (folder,) = [words[0] for name, words in steps() if name == 'WORKDIR']
  (settings,) = [words for name, words in steps() if name == 'ENV']
  assert settings == [f'PATH={folder}/.venv/bin:$PATH', f'PYTHONPATH={folder}']


def test_everything_copied_is_let_in_and_nothing_else():
  lines = [line for line in IGNORED.splitlines() if not line.startswith('#')]
  assert lines[0] == '*'
  let_in = {line[1:] for line in lines if line.startswith('!')}
  assert all((job.ROOT / name).exists() for name in let_in)
  needed = {'experiments', 'launch', 'rmc_jax', 'README.md'}
  for sources in until_set_up().values():
    needed |= {source.partition('/')[0] for source in sources}
  assert let_in == needed
  assert lines[-1] == '**/__pycache__'
