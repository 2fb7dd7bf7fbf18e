"""Tests experiments/language_modeling/train.py on a made-up corpus."""

import ast
import dataclasses
import functools
import json
import pathlib
import signal

import jax
import numpy as np
import pytest

from experiments import configuration
from experiments.language_modeling import analysis
from experiments.language_modeling import corpus as corpus_lib
from experiments.language_modeling import network
from experiments.language_modeling import sample
from experiments.language_modeling import sweep
from experiments.language_modeling import train
from rmc_jax import training
from rmc_jax.datasets import load
from rmc_jax.errors import ConfigurationError
from rmc_jax.errors import Preempted
from rmc_jax.metrics import divide
from rmc_jax.training import parallel
from rmc_jax.training.log import read_metrics
from tests.experiments.language_modeling.tiny import config_of
from tests.experiments.language_modeling.tiny import longer
from tests.experiments.language_modeling.tiny import run_experiment
from tests.experiments.language_modeling.tiny import short
from tests.experiments.language_modeling.tiny import TEXTS
from tests.training import jobs


@pytest.mark.parametrize('preset', sweep.PRESETS)
def test_presets_are_valid(preset):
  configuration.validate(config_of(preset))


def test_sweep_is_plain_data():
  tree = ast.parse(pathlib.Path(sweep.__file__).read_text())
  assert not [
    node
    for node in ast.walk(tree)
    if isinstance(node, ast.Import | ast.ImportFrom)
  ]


def test_short_run_learns_and_writes_its_results(trained):
  config, workdir = trained
  records = read_metrics(workdir)
  assert [r['step'] for r in records if 'eval' in r] == [20, 40, 60]
  summary = json.loads((workdir / analysis.SUMMARY).read_text())
  assert summary['splits']['valid']['tokens'] == 5 * 12
  assert summary['splits']['test']['tokens'] == 6 * 9
  # Eleven words and the two symbols.
  assert summary['uniform'] == 13
  # All lines are alike: the count of a word says nothing.
  assert summary['splits']['valid']['unigram'] == pytest.approx(12, rel=0.02)
  assert summary['splits']['valid']['perplexity'] < 6
  assert set(summary['by_length']) == {'3', '10'}
  for figure in (analysis.CURVES, analysis.LENGTHS, analysis.TRACE):
    assert (workdir / figure).read_bytes().startswith(b'\x89PNG')
  # Three texts of fifty words, with a blank line between them.
  texts = (workdir / analysis.SAMPLES).read_text().strip().split('\n\n')
  assert [len(text.split()) for text in texts] == [50, 50, 50]
  shown = analysis.report(workdir).partition('The first of the samples:')[2]
  assert shown.split() == texts[0].split()
  trace = np.load(workdir / analysis.TRACE_DATA)
  core = config.core
  corpus = corpus_lib.open_corpus('wikitext2', config.data_dir)
  ids = np.asarray(corpus.ids['valid'][:40])
  assert list(trace['words']) == corpus.vocabulary.decode(ids)
  assert list(trace['words'][:3]) == ['w0', 'w1', 'w2']
  assert trace['attention'].shape == (40, core.num_heads, 1, 2)
  units = core.num_heads * core.head_size
  assert trace['forget_gate'].shape == (40, 1, units)
  # Twelve words later the text is the same again, but not one word later.
  head = trace['attention'][:, 0, 0, 1]
  np.testing.assert_allclose(head[24:28], head[12:16], atol=0.02)
  assert np.abs(head[12:24] - head[13:25]).max() > 0.05


def test_measurement_and_data_dir_may_change_on_resume(tmp_path):
  config = short(tmp_path)
  run = configuration.to_json('language_modeling', 'quick', config)
  configuration.save(tmp_path, run)
  (tmp_path / 'checkpoints' / '20').mkdir(parents=True)

  def check(**fields):
    changed = dataclasses.replace(config, **fields)
    text = configuration.to_json('language_modeling', 'quick', changed)
    configuration.check_workdir(tmp_path, text, changed)

  check(data_dir='/elsewhere', eval_tokens=38, eval_lengths=(4,), eval_rows=1)
  check(run=dataclasses.replace(config.run, num_steps=61, log_every=3))
  with pytest.raises(ConfigurationError, match='window: 7 there, 8 now'):
    check(window=8)
  with pytest.raises(ConfigurationError, match='seed: 0 there, 1 now'):
    check(run=dataclasses.replace(config.run, seed=1))


def test_run_is_not_resumed_with_another_text(tmp_path, monkeypatch):
  # As many words, so that the checkpoint fits.
  other = {split: text.replace('w3', 'x3') for split, text in TEXTS.items()}
  workdir = tmp_path / 'run'
  config = short(tmp_path / 'data', num_steps=20)
  workdir.mkdir()
  # From a run that was stopped before its first checkpoint.
  (workdir / 'text.json').write_text('{"vocabulary": "of another"}')
  run_experiment(config, workdir)
  before = (workdir / 'metrics.jsonl').read_bytes()
  further = longer(config, 40)
  monkeypatch.setattr(
    corpus_lib.load, 'documents', lambda name, split, data_dir: [other[split]]
  )
  elsewhere = dataclasses.replace(further, data_dir=str(tmp_path / 'other'))
  with pytest.raises(ConfigurationError, match='another text: vocabulary'):
    run_experiment(elsewhere, workdir)
  assert sample.main([str(workdir), f'--data_dir={tmp_path / "other"}']) == 77
  # The same words, but another number of them.
  other = {split: 2 * text for split, text in TEXTS.items()}
  shorter = dataclasses.replace(further, data_dir=str(tmp_path / 'longer'))
  with pytest.raises(ConfigurationError, match='train, valid, test differ'):
    run_experiment(shorter, workdir)
  assert (workdir / 'metrics.jsonl').read_bytes() == before
  text = (workdir / 'text.json').read_text()
  for damaged in ('{"vocab', '7'):
    (workdir / 'text.json').write_text(damaged)
    with pytest.raises(ConfigurationError, match=r'text\.json cannot be read'):
      run_experiment(further, workdir)
  (workdir / 'text.json').unlink()
  with pytest.raises(ConfigurationError, match=r'but no text\.json'):
    run_experiment(further, workdir)
  (workdir / 'text.json').write_text(text)
  compared = []
  monkeypatch.setattr(
    corpus_lib.distributed, 'check_same', lambda *same: compared.append(same)
  )
  run_experiment(further, workdir)
  assert read_metrics(workdir)[-1]['step'] == 40
  assert ('text', text) in compared


def test_progress_is_reported_for_every_document(tmp_path):
  calls = []
  corpus_lib.open_corpus(
    'wikitext2', tmp_path, progress_fn=lambda *call: calls.append(call)
  )
  # The vocabulary and the ids of three splits, each before and after.
  assert len(calls) == 4 * 2
  assert calls[-1] == ('wikitext2 test documents', 1, 0)


def test_preparation_and_measurement_can_be_stopped(
  trained, tmp_path, monkeypatch
):
  config, _ = trained
  workdir = tmp_path / 'run'
  config = dataclasses.replace(config, data_dir=str(tmp_path / 'data'))
  progress, calls, stop_at = training.Runner.progress, [], 2

  def stopping(runner, *call):
    calls.append(call)
    if len(calls) == stop_at:
      signal.raise_signal(signal.SIGTERM)
    progress(runner, *call)

  monkeypatch.setattr(training.Runner, 'progress', stopping)
  with pytest.raises(Preempted, match='Stopped at wikitext2 train documents'):
    run_experiment(config, workdir)
  assert not list((tmp_path / 'data').glob('**/*.ids'))

  run_experiment(config, workdir)
  complete = (workdir / analysis.SUMMARY).read_bytes()
  (workdir / analysis.SUMMARY).unlink()
  stop_at = len(calls) + 2  # The corpus is open already.
  with pytest.raises(Preempted, match='Stopped at valid: 28 of 60'):
    run_experiment(config, workdir)
  assert not (workdir / analysis.SUMMARY).exists()
  run_experiment(config, workdir)
  assert (workdir / analysis.SUMMARY).read_bytes() == complete


def test_training_carries_the_state_from_window_to_window(data_dir):
  config = short(data_dir)
  corpus = corpus_lib.open_corpus('wikitext2', data_dir)
  experiment = train.make_experiment(config, corpus)
  make = functools.partial(train.make_model, config, corpus.vocabulary.size)
  model = network.make_evaluated(make)
  log_probs = jax.jit(model.log_probs)
  state = parallel.place_state(jax.jit(experiment.init)())
  fresh = carried = model.initial_state(config.batch_size)
  num_windows = (len(corpus.ids['train']) - 1) // (4 * 7)
  for step in range(num_windows + 2):
    begins = step % num_windows == 0
    params = jax.device_get(state.params)
    batch = experiment.source.batch(step)
    assert batch['reset'].all() == batch['reset'].any() == begins
    read = functools.partial(
      log_probs, params, batch['inputs'], batch['targets']
    )
    state, _ = experiment.update(state, parallel.split_batch(batch))
    got = parallel.gather_carry(state).carry
    from_fresh, carried = read(fresh)[1], read(carried)[1]
    # Rounding of products that are split over devices otherwise.
    near = {'rtol': 1e-4, 'atol': 1e-5}
    if begins:  # A new epoch forgets the last one.
      carried = from_fresh
    else:
      assert not np.allclose(got, from_fresh, **near)
    np.testing.assert_allclose(got, carried, **near)


@pytest.mark.slow
@pytest.mark.parametrize(
  'fields',
  [{'embedding_dropout': 0.9}, {'output_dropout': 0.9}, {'num_sampled': 3}],
)
def test_dropout_and_sampling_change_the_loss(data_dir, fields):
  def first_loss(**fields):
    config = short(data_dir, **fields)
    corpus = corpus_lib.open_corpus('wikitext2', data_dir)
    experiment = train.make_experiment(config, corpus)
    batch = parallel.split_batch(experiment.source.batch(0))
    state = parallel.place_state(jax.jit(experiment.init)())
    _, metrics = experiment.update(state, batch)
    return divide(metrics)['loss']

  assert first_loss() == first_loss()
  assert abs(first_loss(**fields) - first_loss()) > 1e-3


def test_stopped_run_resumes_to_the_same_curve(data_dir, tmp_path):
  config = short(data_dir, num_steps=40, embedding_dropout=0.3)
  whole, parts = tmp_path / 'whole', tmp_path / 'parts'
  run_experiment(config, whole)
  run_experiment(longer(config, 20), parts)
  run_experiment(config, parts)
  assert [
    (r['step'], r['train']['loss'], r['eval']['loss'])
    for r in read_metrics(parts)
  ] == [
    (r['step'], r['train']['loss'], r['eval']['loss'])
    for r in read_metrics(whole)
  ]


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'corpus': 'wiki'}, "corpus must be one of wikitext2.*'wiki'"),
    ({'window': 0}, 'window must be at least 1'),
    ({'eval_lengths': (3, 0)}, r'eval_lengths\[1\] must be at least 1'),
    ({'eval_lengths': (10.5,)}, r'eval_lengths must be tuple\[int, \.\.\.\]'),
    ({'eval_lengths': ('',)}, r"eval_lengths must be tuple.*Got: \(''"),
    ({'vocabulary_size': 1}, 'vocabulary_size must be at least 2'),
    ({'vocabulary_size': 0}, 'vocabulary_size must be at least 2'),
    ({'head': 'free'}, 'head must be one of'),
    ({'embedding_dropout': 1.5}, 'embedding_dropout must be in'),
  ],
)
def test_invalid_configuration_is_refused(fields, message):
  with pytest.raises(configuration.ConfigurationError, match=message):
    configuration.validate(config_of('quick', **fields))


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'window': 1000}, 'window=1000'),
    ({'vocabulary_size': 1}, 'at least 2 words'),
    ({'num_sampled': 50}, 'num_sampled must be .* vocab_size, 13'),
  ],
)
def test_configuration_that_the_text_does_not_allow_is_refused(
  data_dir, tmp_path, fields, message
):
  config = short(data_dir, **fields)
  with pytest.raises(configuration.ConfigurationError, match=message):
    run_experiment(config, tmp_path)


@pytest.mark.slow
@pytest.mark.multiprocess
def test_two_processes_train_like_one(tmp_path):
  books, data_dir = tmp_path / 'books', tmp_path / 'data'
  for split, text in TEXTS.items():
    (books / split).mkdir(parents=True)
    (books / split / 'book.txt').write_text(text)
  load.prepare('gutenberg/folder', data_dir=data_dir, manual_dir=books)
  flags = [
      '--config.corpus=gutenberg/folder', f'--config.data_dir={data_dir}',
      '--config.batch_size=6', '--config.window=7', '--config.run.num_steps=40',
      '--config.run.log_every=1', '--config.run.eval_every=20',
      '--config.core.head_size=3', '--config.eval_lengths=(5,)',
  ]  # fmt: skip

  def run(name, num_processes):
    own = [*flags, f'--workdir={tmp_path / name}']
    ended = jobs.train('language_modeling', own, num_processes)
    summary = json.loads((tmp_path / name / analysis.SUMMARY).read_text())
    return read_metrics(tmp_path / name), summary, ended[-1][1]

  one, one_summary, _ = run('one', 1)
  two, two_summary, second_said = run('two', 2)
  assert [line['step'] for line in two] == list(range(1, 41))
  # Dropout is on: each device draws its own, and there are two in both.
  for mine, other in zip(one, two, strict=True):
    np.testing.assert_allclose(
      mine['train']['loss'], other['train']['loss'], rtol=1e-5
    )
  for split in ('valid', 'test'):
    assert two_summary['splits'][split]['perplexity'] == pytest.approx(
      one_summary['splits'][split]['perplexity'], rel=1e-4
    )
  assert 'perplexity' not in second_said  # Only the primary prints.
