"""Tests experiments/language_modeling/perplexity.py."""

import math

import numpy as np
import pytest

from experiments.language_modeling import corpus as corpus_lib
from experiments.language_modeling import perplexity
from experiments.language_modeling import sample
from experiments.language_modeling import train


def test_perplexity_of_a_split_depends_on_no_window(trained):
  config, workdir = trained
  corpus = corpus_lib.open_corpus('wikitext2', config.data_dir)
  model = train.make_evaluated(config, corpus.vocabulary.size)
  params = sample.read_params(
    workdir, train.make_init(config, corpus.vocabulary.size)
  )
  ids, eos = corpus.ids['valid'], corpus.vocabulary.eos
  whole = perplexity.token_log_probs(model, params, ids, 60, eos)
  assert len(whole) == 60
  for window in (7, 60, 1, 100):
    got = perplexity.token_log_probs(model, params, ids, window, eos)
    # Rounding of products of other shapes, carried over 60 steps.
    np.testing.assert_allclose(got, whole, rtol=1e-4, atol=1e-4)
  told = []
  perplexity.token_log_probs(
    model, params, ids, 25, eos, name='valid', tell=lambda *a: told.append(a)
  )
  assert told == [('valid in one unroll', done, 60) for done in (25, 50, 60)]
  # As one call over the whole text says it.
  inputs = np.concatenate([[eos], ids[:-1]]).astype(np.int32)[None]
  targets = np.asarray(ids, np.int32)[None]
  expected, _ = model.log_probs(params, inputs, targets, model.initial_state(1))
  np.testing.assert_allclose(whole, expected[0], rtol=1e-4, atol=1e-4)
  # Pieces: as the text in rows, each from the initial state.
  told.clear()
  by_length = perplexity.by_length(
    model,
    params,
    ids,
    (9,),
    eos,
    batch_size=4,
    tell=lambda *a: told.append(a),
  )
  assert told == [('text in unrolls of 9', done, 54) for done in (36, 54)]
  total = 0.0
  for first in range(0, 54, 9):
    got, _ = model.log_probs(
      params,
      inputs[:, first : first + 9],
      targets[:, first : first + 9],
      model.initial_state(1),
    )
    total += float(got.sum())
  assert by_length[9] == pytest.approx(math.exp(-total / 54), rel=1e-4)


def test_frequency_bands_and_unigram_by_hand():
  vocabulary = corpus_lib.Vocabulary(
    ('the', '<eos>', 'cat', '<unk>'), (10_001, 1000, 999, 3)
  )
  ids = np.array([0, 1, 2, 3, 3])
  log_probs = np.log([0.5, 0.25, 0.125, 0.1, 0.4])
  bands = perplexity.by_frequency(log_probs, ids, vocabulary)
  assert bands['> 10,000'] == (pytest.approx(2.0), 1)
  assert bands['1,000 to 10,000'] == (pytest.approx(4.0), 1)
  assert bands['< 1,000'][1] == 3
  assert bands['< 1,000'][0] == pytest.approx((0.125 * 0.1 * 0.4) ** (-1 / 3))
  assert bands['all'][1] == 5
  total = 10_002 + 1001 + 1000 + 4
  np.testing.assert_allclose(
    np.exp(perplexity.unigram_log_probs(ids, vocabulary)),
    np.array([10_002, 1001, 1000, 4, 4]) / total,
  )
  # What diverged has a perplexity too.
  assert perplexity.perplexity(np.array([-800.0, -900.0])) == math.inf
