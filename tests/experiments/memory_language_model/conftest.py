"""The synthetic corpus in place of a prepared one."""

import pytest

from tests.experiments.language_modeling.tiny import replace_documents


@pytest.fixture(autouse=True)
def documents(monkeypatch):
  replace_documents(monkeypatch)


@pytest.fixture(scope='session')
def data_dir(tmp_path_factory):
  return tmp_path_factory.mktemp('data')
