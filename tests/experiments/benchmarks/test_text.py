"""Tests experiments/benchmarks/text.py at a tiny size."""

import dataclasses
import json

import numpy as np
import pytest

from experiments import configuration
from experiments.benchmarks import text


def test_every_preset_is_a_size():
  assert set(text.SIZES) == set(text.sweep.PRESETS)


@pytest.mark.parametrize('name', text.SIZES)
def test_sizes_are_presets_and_have_the_vocabulary_of_theirs(name):
  config = text.config_of(name)
  configuration.validate(config)
  assert config.vocabulary_size in (None, text.SIZES[name])


def test_what_is_made_up_is_as_frequent_as_words_are(tmp_path, monkeypatch):
  monkeypatch.setattr(text, '_CHUNK', 700)  # the last one is not full
  corpus = text.make_up(tmp_path, vocabulary_size=11, num_words=30_011)
  ids = corpus.ids['train']
  assert isinstance(ids, np.memmap)
  assert ids.shape == (30_011,)
  assert ids.dtype == np.uint16
  assert corpus.vocabulary.size == 11
  shares = np.bincount(ids, minlength=11) / len(ids)
  expected = 1 / np.arange(1, 12)
  # Five standard errors of the largest share.
  np.testing.assert_allclose(shares, expected / expected.sum(), atol=0.014)


def test_large_vocabularies_take_larger_ids(tmp_path):
  corpus = text.make_up(tmp_path, vocabulary_size=70_000, num_words=100)
  assert corpus.ids['train'].dtype == np.int32


def test_reads_and_trains_in_turn_and_writes_what_it_measured(
  tmp_path, monkeypatch, capsys
):
  tiny = dataclasses.replace(
    text.config_of('quick'), embedding_size=5, batch_size=8, window=3
  )
  tiny.core = dataclasses.replace(tiny.core, head_size=3)
  monkeypatch.setattr(text, 'config_of', lambda name: tiny)
  # Devices are there already.
  monkeypatch.setattr(text.jax.config, 'update', lambda *_: None)
  monkeypatch.setattr(text, 'peak_bytes', lambda: 3_250_000_000)
  output = tmp_path / 'results.json'
  text.main(
    [
      '--sizes=quick',
      '--num_words=500',
      '--rounds=2',
      '--turn_seconds=0',
      f'--output={output}',
    ]
  )
  results = json.loads(output.read_text())
  measured = results['sizes']['quick']
  assert [len(measured[kind]) for kind in ('made', 'used')] == [2, 2]
  assert min(*measured['made'], *measured['used']) > 0
  printed = capsys.readouterr().out
  assert 'words/s used' in printed
  assert 'an update of 8 x 3 words' in printed
  assert 'at most 3.25 GB' in printed


def test_an_update_takes_the_median_and_memory_may_be_unknown():
  # 32 x 35 words.
  line = text.describe('quick', [1120.0, 560.0, 2240.0], None)
  assert '1,000.0 ms an update' in line
  assert line.endswith('memory unknown')


def test_a_cpu_cannot_tell_its_memory():
  assert text.peak_bytes() is None
