"""Compares dry runs with the files in tests/launch/goldens/.

`python -m tests.launch.goldens` prints the differences; with --write it accepts
them.
"""

import shutil
import subprocess

import pytest

from tests.launch import goldens


@pytest.mark.parametrize('name', goldens.CASES)
def test_dry_run_equals_the_golden_file(name):
  rendered = goldens.render(goldens.CASES[name])
  expected = (goldens.FOLDER / name).read_text()
  assert goldens.parse(name, rendered) == goldens.parse(name, expected)


def test_every_golden_file_has_a_case():
  assert {path.name for path in goldens.FOLDER.iterdir()} == set(goldens.CASES)


@pytest.mark.skipif(
  not shutil.which('shellcheck'), reason='shellcheck is not installed'
)
def test_shellcheck_accepts_the_slurm_scripts():
  scripts = goldens.FOLDER.glob('*.sbatch')
  checked = subprocess.run(
    ['shellcheck', *scripts], capture_output=True, text=True
  )
  assert checked.returncode == 0, checked.stdout
