"""The synthetic corpus in place of a prepared one, and a short run on it."""

import pytest

from experiments.language_modeling import analysis
from tests.experiments.language_modeling.tiny import replace_documents
from tests.experiments.language_modeling.tiny import run_experiment
from tests.experiments.language_modeling.tiny import short


@pytest.fixture(autouse=True)
def documents(monkeypatch):
  replace_documents(monkeypatch)


@pytest.fixture(scope='session')
def data_dir(tmp_path_factory):
  return tmp_path_factory.mktemp('data')


@pytest.fixture
def trained(data_dir, documents):
  """A short run, shared by all tests."""
  workdir = data_dir / 'run'
  config = short(data_dir)
  if not (workdir / analysis.SUMMARY).exists():
    run_experiment(config, workdir)
  return config, workdir
