"""Tests the steps of launch/Dockerfile without building an image."""

import configparser
import re
import runpy
import shutil
import subprocess
import sys

import pytest

from launch import job
from launch import pod

DOCKERFILE = (job.ROOT / 'launch/Dockerfile').read_text()
IGNORED = (job.ROOT / '.dockerignore').read_text()


def steps():
  """Returns the instructions, each with its words."""
  lines = [
    line.split()
    for line in DOCKERFILE.replace('\\\n', ' ').splitlines()
    if line and not line.startswith('#')
  ]
  return [(name, words) for name, *words in lines]


def copied_before_setup():
  """Returns what is copied before the packages are installed, by folder."""
  copied = {}
  for name, words in steps():
    if name == 'RUN':
      assert 'launch/setup.sh' in words
      return copied
    if name == 'COPY':
      copied.setdefault(words[-1], []).extend(words[:-1])
  raise AssertionError('no RUN step')


@pytest.fixture
def layer(tmp_path):
  """A folder with the files from which the packages are installed."""
  for folder, sources in copied_before_setup().items():
    (tmp_path / folder).mkdir(exist_ok=True)
    for source in sources:
      shutil.copy(job.ROOT / source, tmp_path / folder)
  return tmp_path


def test_code_is_copied_after_the_packages_are_installed(layer):
  code = [path.name for path in layer.rglob('*.py')]
  assert code == ['version.py']
  later = steps()[[name for name, _ in steps()].index('RUN') + 1 :]
  assert ('COPY', ['.', '.']) in later


@pytest.mark.parametrize('accelerator', ['cpu', 'cuda12', 'cuda13', 'tpu'])
def test_setup_has_its_files(layer, accelerator):
  assert ('ARG', ['ACCELERATOR=cpu']) in steps()
  completed = subprocess.run(
      [layer / 'launch/setup.sh', '--dry-run'],
      env={'PATH': '/usr/bin:/bin', 'ACCELERATOR': accelerator},
      capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert completed.returncode == 0, completed.stderr
  script = (layer / 'launch/setup.sh').read_text()
  names = re.findall(r'\$root/([\w./]+)', script)
  assert 'launch/find_python.sh' in names
  assert all((layer / name).exists() for name in names if name != '.venv')
  assert f'--editable {layer}[' in completed.stderr
  assert (f',{accelerator}]' in completed.stderr) == (accelerator != 'cpu')


def test_project_can_be_built_from_the_files(layer):
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


def test_python_of_the_image_is_supported():
  (image,) = [words[0] for name, words in steps() if name == 'FROM']
  version = re.fullmatch(r'python:(3\.\d+)-slim-\w+', image)[1]
  config = configparser.ConfigParser()
  config.read(job.ROOT / 'setup.cfg')
  classifier = f'Programming Language :: Python :: {version}'
  assert classifier in config['metadata']['classifiers'].splitlines()


def test_user_is_in_the_group_of_the_volumes():
  assert steps()[-1] == ('USER', [str(pod.GROUP)])
  (useradd,) = [w for name, w in steps() if name == 'RUN' and 'useradd' in w]
  assert f'--uid={pod.GROUP}' in useradd


def test_programs_run_in_any_folder():
  (folder,) = [words[0] for name, words in steps() if name == 'WORKDIR']
  (variables,) = [words for name, words in steps() if name == 'ENV']
  assert variables == [f'PATH={folder}/.venv/bin:$PATH', f'PYTHONPATH={folder}']


def test_dockerignore_admits_only_copied_files():
  lines = [line for line in IGNORED.splitlines() if not line.startswith('#')]
  assert lines[0] == '*'
  admitted = {line[1:] for line in lines if line.startswith('!')}
  assert all((job.ROOT / name).exists() for name in admitted)
  needed = {'experiments', 'launch', 'rmc_jax', 'README.md'}
  for sources in copied_before_setup().values():
    needed |= {source.partition('/')[0] for source in sources}
  assert admitted == needed
  assert lines[-1] == '**/__pycache__'
