"""The synthetic corpus in place of a prepared one, and a short run on it."""

import pathlib

import pytest

from experiments.language_modeling import analysis
from experiments.language_modeling import corpus as corpus_lib
from tests.experiments.language_modeling.tiny import run_experiment
from tests.experiments.language_modeling.tiny import short
from tests.experiments.language_modeling.tiny import TEXTS


@pytest.fixture(autouse=True)
def documents(monkeypatch):
  monkeypatch.setattr(
    corpus_lib.load,
    'documents',
    lambda name, split, data_dir: iter([TEXTS[split]]),
  )
  monkeypatch.setattr(
    corpus_lib.load,
    'folder',
    lambda name, data_dir: pathlib.Path(data_dir) / name,
  )


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
