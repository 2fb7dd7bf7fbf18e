"""Prepared artificial bAbI files."""

import pytest

from rmc_jax.datasets import load
from tests.datasets.babi import stories


@pytest.fixture(scope='session')
def data_dir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('babi')
  stories.write(folder / 'copy')
  load.prepare('babi/en', data_dir=folder, manual_dir=folder / 'copy')
  return folder
