"""Tests experiments/language_modeling/perplexity.py."""

import functools
import math

import jax
import numpy as np
import pytest

from experiments.language_modeling import corpus as corpus_lib
from experiments.language_modeling import network
from experiments.language_modeling import perplexity
from experiments.language_modeling import sample
from experiments.language_modeling import train
from rmc_jax.training import parallel


@pytest.fixture
def measured(trained):
  """The trained model, its parameters, the ids of 'valid' and <eos>."""
  config, workdir = trained
  corpus = corpus_lib.open_corpus('wikitext2', config.data_dir)
  make = functools.partial(train.make_model, config, corpus.vocabulary.size)
  params = sample.read_params(
    workdir, train.make_init(config, corpus.vocabulary.size)
  )
  return (
    network.make_evaluated(make),
    parallel.replicate(params),
    corpus.ids['valid'],
    corpus.vocabulary.eos,
  )


def as_rows(ids, eos):
  """Inputs and targets [1, tokens] of the whole text."""
  inputs = np.concatenate([[eos], ids[:-1]]).astype(np.int32)[None]
  return inputs, np.asarray(ids, np.int32)[None]


def test_one_row_does_not_depend_on_the_window(measured):
  model, params, ids, eos = measured
  calls = []
  result = perplexity.token_log_probs(
    model,
    params,
    ids,
    25,
    eos,
    name='valid',
    progress_fn=lambda *call: calls.append(call),
  )
  assert calls == [('valid', done, 60) for done in (25, 50, 60)]
  local = jax.device_get(params)
  expected, _ = model.log_probs(
    local, *as_rows(ids, eos), model.initial_state(1)
  )
  np.testing.assert_allclose(result, expected[0], rtol=1e-4, atol=1e-4)
  for window in (7, 60, 1, 100):
    got = perplexity.token_log_probs(model, params, ids, window, eos)
    # Rounding of products of other shapes, carried over 60 steps.
    np.testing.assert_allclose(got, result, rtol=1e-4, atol=1e-4)


def test_rows_start_one_window_before_their_first_token(measured):
  model, params, ids, eos = measured
  window, num_rows = 7, 4
  got = perplexity.token_log_probs(
    model, params, ids, window, eos, num_rows=num_rows
  )
  assert got.shape == (60,)
  inputs, targets = as_rows(ids, eos)
  local, length = jax.device_get(params), 60 // num_rows
  for row in range(num_rows):
    begin = max(0, row * length - window)
    span = slice(begin, (row + 1) * length)
    expected, _ = model.log_probs(
      local, inputs[:, span], targets[:, span], model.initial_state(1)
    )
    np.testing.assert_allclose(
      got[row * length : (row + 1) * length],
      expected[0, row * length - begin :],
      rtol=1e-4,
      atol=1e-4,
    )


def test_rows_count_every_token_of_a_text_they_do_not_divide(measured):
  model, params, ids, eos = measured
  exact = perplexity.token_log_probs(model, params, ids[:53], 5, eos)
  got = perplexity.token_log_probs(model, params, ids[:53], 5, eos, num_rows=3)
  assert got.shape == (53,)
  # The text repeats every 12 words, most of which the warm-up of 5 has seen.
  assert abs(got.mean() - exact.mean()) < 0.05
  # The first row is exact.
  np.testing.assert_allclose(got[:14], exact[:14], rtol=1e-4, atol=1e-4)


def test_text_too_short_for_rows_is_read_as_one(measured):
  model, params, ids, eos = measured
  exact = perplexity.token_log_probs(model, params, ids, 7, eos)
  got = perplexity.token_log_probs(model, params, ids, 7, eos, num_rows=64)
  np.testing.assert_array_equal(got, exact)


def test_pieces_start_from_the_initial_state(measured):
  model, params, ids, eos = measured
  calls = []
  by_length = perplexity.by_length(
    model,
    params,
    ids,
    (9,),
    eos,
    batch_size=4,
    progress_fn=lambda *call: calls.append(call),
  )
  assert calls == [('text in unrolls of 9', done, 54) for done in (36, 54)]
  inputs, targets = as_rows(ids, eos)
  total = 0.0
  for first in range(0, 54, 9):
    got, _ = model.log_probs(
      jax.device_get(params),
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
  # A diverged model has a perplexity too.
  assert perplexity.perplexity(np.array([-800.0, -900.0])) == math.inf
