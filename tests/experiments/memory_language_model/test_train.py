"""Tests experiments/memory_language_model/ on a made-up corpus."""

import ast
import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments import configuration
from experiments.language_modeling.corpus import open_corpus
from experiments.memory_language_model import analysis
from experiments.memory_language_model import results
from experiments.memory_language_model import sweep
from experiments.memory_language_model import train
from rmc_jax import training
from rmc_jax.datasets import load
from rmc_jax.errors import ConfigurationError
from rmc_jax.metrics import divide
from rmc_jax.training import parallel
from rmc_jax.training.log import read_metrics
from tests.experiments.language_modeling.tiny import TEXTS
from tests.reference import memn2n_language as reference
from tests.training import jobs

# Words in memory, units, hops; words predicted in an update.
N, D, K, B = 5, 8, 2, 12


def config_of(preset, **fields):
  config = configuration.with_preset(train.Config, sweep.PRESETS, preset)
  return dataclasses.replace(config, **fields)


def short(data_dir, num_steps=60, **fields):
  fields = {
    'data_dir': str(data_dir),
    'vocabulary_size': None,
    'embedding_size': D,
    'num_linear': 3,
    'num_hops': K,
    'memory_size': N,
    'batch_size': B,
    'eval_tokens': None,
    'learning_rate': 0.1,
    'init_stddev': 0.3,
  } | fields
  config = config_of('quick', **fields)
  config.run = training.RunConfig(
    num_steps=num_steps, log_every=20, eval_every=20, checkpoint_every=20
  )
  return config


def run_experiment(config, workdir):
  """Trains as the command line does; returns what it writes and logs."""
  with training.Runner(workdir) as runner:
    text = configuration.to_json('memory_language_model', 'quick', config)
    configuration.save(workdir, text)
    train.train(config, runner)
  return read_results(workdir)


def read_results(workdir):
  summary = json.loads((workdir / analysis.SUMMARY).read_text())
  return summary, read_metrics(workdir)


@pytest.mark.parametrize('preset', sweep.PRESETS)
def test_presets_are_valid(preset):
  config = config_of(preset)
  configuration.validate(config)
  assert config.run.num_steps % config.run.eval_every == 0


def test_sweep_is_plain_data():
  for data in (sweep.PRESETS, sweep.SWEEPS):
    assert ast.literal_eval(repr(data)) == data


def test_presets_are_the_papers():
  ptb = config_of('ptb')
  assert ptb == train.Config()
  assert (ptb.embedding_size, ptb.num_linear, ptb.batch_size) == (150, 75, 128)
  assert (ptb.num_hops, ptb.memory_size) == (6, 100)
  assert ptb.run.eval_every == 7263  # 929,589 words / 128, rounded up
  text8 = config_of('text8')
  assert (text8.embedding_size, text8.num_linear) == (500, 250)


@pytest.mark.parametrize('corpus, units', analysis.TABLE_2)
def test_sweeps_have_the_rows_of_the_table(corpus, units):
  runs = sweep.SWEEPS[f'table_2_{corpus}'].values()
  swept = {(r['config.num_hops'], r['config.memory_size']) for r in runs}
  assert swept == analysis.TABLE_2[corpus, units].keys()
  assert config_of(corpus).embedding_size == units


def test_batches_are_random_words_after_those_before_them(data_dir):
  ids = open_corpus('wikitext2', data_dir).ids['train']
  source = train.make_source(short(data_dir), ids)
  batch = source.batch(3)
  assert batch.shape == (B, N + 1)
  windows = {tuple(ids[i : i + N + 1]) for i in range(len(ids) - N)}
  assert {tuple(row) for row in batch} <= windows
  np.testing.assert_array_equal(batch, source.batch(3))
  assert (batch != source.batch(4)).any()


def test_evaluation_counts_every_word_after_the_first_once(data_dir):
  config = short(data_dir)
  corpus = open_corpus('wikitext2', data_dir)
  network = train.make_network(config, corpus.vocabulary.size)
  state = jax.jit(train.make_experiment(config, corpus).init)()
  # 55 words in batches of 12: the last one has 7.
  ids = corpus.ids['valid']
  sums = results.make_evaluate(network, ids, N, B)(parallel.place_state(state))
  loss, attention = 0.0, np.zeros((K, N))
  for i in range(N, 60):
    logits, each = reference.next_word(
      state.params['memn2n_language_model'],
      ids[i - N : i],
      num_hops=K,
      num_linear=3,
    )
    loss += np.log(np.exp(logits).sum()) - logits[ids[i]]
    attention += each
  assert sums['loss'][1] == 55
  # float32 against float64, sums of 55 numbers of about 3.
  np.testing.assert_allclose(sums['loss'][0], loss, rtol=1e-5)
  np.testing.assert_allclose(
    divide(sums)['attention'], attention / 55, rtol=1e-5
  )


def test_run_learns_anneals_and_resumes_to_the_same_results(data_dir, tmp_path):
  # No loss falls to half, so that every evaluation after the first anneals.
  config = short(data_dir, improvement=0.5)
  summary, records = run_experiment(config, tmp_path / 'whole')
  assert [line['step'] for line in records] == [20, 40, 60]
  # The log has the rate before the annealing.
  rates = [line['eval']['learning_rate'] for line in records]
  np.testing.assert_allclose(rates, [0.1, 0.1, 0.1 / 1.5], rtol=1e-6)
  assert summary['uniform'] == 13  # Eleven words and the two symbols.
  valid, test = summary['splits']['valid'], summary['splits']['test']
  assert (valid['words'], test['words']) == (60 - N, 54 - N)
  # All lines are alike: the count of a word says nothing, the last word all.
  assert valid['unigram'] == pytest.approx(12, rel=0.02)
  assert valid['perplexity'] < 6
  assert analysis.score(summary) == test['perplexity'] / test['unigram']
  attention = np.array(test['attention'])
  assert attention.shape == (K, N)
  np.testing.assert_allclose(attention.sum(1), 1, rtol=1e-6)
  for figure in (analysis.CURVE, analysis.ATTENTION):
    assert (tmp_path / 'whole' / figure).read_bytes().startswith(b'\x89PNG')

  # Stopped between two evaluations: the one at the end must not anneal.
  for num_steps in (30, 60):
    run = dataclasses.replace(config.run, num_steps=num_steps)
    changed = dataclasses.replace(config, run=run)
    again, resumed = run_experiment(changed, tmp_path / 'resumed')
  assert again == summary
  assert [line['step'] for line in resumed] == [20, 30, 40, 60]
  assert resumed[-1]['eval'] == records[-1]['eval']


def test_report_of_two_runs(tmp_path):
  split = {'perplexity': 114.9, 'unigram': 600.0, 'attention': [[0.2, 0.8]]}
  summary = {'uniform': 10_000, 'splits': {'valid': split, 'test': split}}
  for name, fields in {'a': {}, 'b': {'num_hops': 1}}.items():
    workdir = tmp_path / name
    workdir.mkdir()
    text = configuration.to_json(
      'memory_language_model', 'ptb', config_of('ptb', **fields)
    )
    configuration.save(workdir, text)
    (workdir / 'metrics.jsonl').write_text(
      '{"step": 1, "train": {"loss": 2.0}, "eval": {"loss": 1.0}}\n'
    )
    (workdir / analysis.SUMMARY).write_text(json.dumps(summary))
  lines = analysis.report(tmp_path / 'a', tmp_path / 'b').splitlines()
  cells = [line.split() for line in lines[1:3]]
  assert cells == [
    ['a', '6', '100', '114.9', '114.9', '600.0', '10,000', '122', '115'],
    ['b', '1', '100', '114.9', '114.9', '600.0', '10,000'],
  ]
  assert lines[3:] == [
    '',
    f'curve: {tmp_path / analysis.CURVE}',
    f'attention: {tmp_path / analysis.ATTENTION}',
  ]
  (tmp_path / 'a' / analysis.SUMMARY).unlink()
  with pytest.raises(ValueError, match='train it further'):
    analysis.report(tmp_path / 'a')


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'corpus': 'wiki'}, "corpus must be one of wikitext2.*'wiki'"),
    ({'memory_size': 0}, 'memory_size must be at least 1'),
    ({'num_linear': 65}, 'num_linear must be one of 0.* Got: 65'),
    ({'vocabulary_size': 1}, 'vocabulary_size must be at least 2'),
    ({'eval_tokens': 50}, 'eval_tokens must be at least 51. Got: 50'),
    ({'anneal_factor': 1.0}, 'anneal_factor must be above 1. Got: 1.0'),
    ({'clip_norm': 0.0}, 'clip_norm must be positive. Got: 0.0'),
  ],
)
def test_invalid_configuration_is_refused(fields, message):
  with pytest.raises(ConfigurationError, match=message):
    configuration.validate(config_of('quick', **fields))


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'memory_size': 60}, r'valid\.ids has 60 words; contexts of 60 need 61'),
    ({'batch_size': 6}, 'global batch of 6 does not divide over 4 devices'),
  ],
)
def test_configuration_that_does_not_fit_is_refused(
  data_dir, tmp_path, fields, message
):
  with pytest.raises(ConfigurationError, match=message):
    run_experiment(short(data_dir, **fields), tmp_path)


def test_updates_per_call_is_refused(data_dir):
  config = short(data_dir)
  config.run.updates_per_call = 2
  with pytest.raises(ValueError, match='updates_per_call must be 1'):
    train.make_experiment(config, open_corpus('wikitext2', data_dir))


PROGRAM = """
import sys

from experiments import command_line
from experiments.memory_language_model import sweep
from experiments.memory_language_model import train

*flags, address, count, index = sys.argv[1:]
if count:
  flags += [f'--coordinator_address={address}', f'--num_processes={count}',
            f'--process_id={index}']
command_line.main(
    train.train, train.Config, sweep.PRESETS, 'memory_language_model',
    argv=['page', *flags])
"""


@pytest.mark.slow
@pytest.mark.multiprocess
def test_two_processes_train_and_anneal_like_one(tmp_path):
  books, data_dir = tmp_path / 'books', tmp_path / 'data'
  for split, text in TEXTS.items():
    (books / split).mkdir(parents=True)
    (books / split / 'book.txt').write_text(text)
  load.prepare('gutenberg/folder', data_dir=data_dir, manual_dir=books)
  flags = [
      '--config.corpus=gutenberg/folder', f'--config.data_dir={data_dir}',
      '--config.batch_size=12', '--config.memory_size=5',
      '--config.eval_tokens=40', '--config.improvement=0.5',
      '--config.run.num_steps=40', '--config.run.log_every=1',
      '--config.run.eval_every=10',
  ]  # fmt: skip

  def run(name, num_processes):
    own = [*flags, f'--workdir={tmp_path / name}']
    alone = ['', '', ''] if num_processes == 1 else []
    ended = jobs.run(
      ['-c', PROGRAM],
      [[*own, *alone]] * num_processes,
      devices=2 // num_processes,
    )
    assert [code for code, _ in ended] == [0] * num_processes, ended
    return read_results(tmp_path / name)

  (one, one_log), (two, two_log) = run('one', 1), run('two', 2)
  assert [line['step'] for line in two_log] == list(range(1, 41))
  for mine, other in zip(one_log, two_log, strict=True):
    for group in mine.keys() & {'train', 'eval'}:
      for name, value in mine[group].items():
        # Processes reduce in another order.
        assert other[group][name] == pytest.approx(value, rel=1e-4)
  assert two_log[-1]['eval']['learning_rate'] < 0.01
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), one, two
  )
