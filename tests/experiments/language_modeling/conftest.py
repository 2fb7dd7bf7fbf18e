"""The made-up corpus in place of a prepared one, and a short run on it."""

import pathlib

import pytest

from experiments.language_modeling import analysis
from experiments.language_modeling import corpus as corpus_lib
from experiments.language_modeling import train
from tests.experiments.language_modeling.tiny import save_config
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
  """A short run, by the experiment's own `train`; the same for all tests."""
  workdir = data_dir / 'run'
  config = short(data_dir)
  if not (workdir / analysis.SUMMARY).exists():
    save_config(config, workdir)
    train.train(config, workdir)
  return config, workdir
