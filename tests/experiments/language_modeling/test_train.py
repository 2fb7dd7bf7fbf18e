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
from experiments.language_modeling import sample
from experiments.language_modeling import sweep
from experiments.language_modeling import train
from rmc_jax.datasets import load
from rmc_jax.errors import ConfigurationError
from rmc_jax.errors import Preempted
from rmc_jax.metrics import divide
from rmc_jax.training import lock
from rmc_jax.training import parallel
from rmc_jax.training import watchdog
from rmc_jax.training.log import read_metrics
from rmc_jax.training.preemption import Preemption
from tests.experiments.language_modeling.tiny import config_of
from tests.experiments.language_modeling.tiny import save_config
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


def test_a_short_run_learns_and_leaves_what_a_person_looks_at(trained):
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
  for figure in (analysis.CURVES, analysis.LENGTHS, analysis.READING):
    assert (workdir / figure).read_bytes().startswith(b'\x89PNG')
  # Three texts of fifty words, with a blank line between them.
  texts = (workdir / analysis.SAMPLES).read_text().strip().split('\n\n')
  assert [len(text.split()) for text in texts] == [50, 50, 50]
  shown = analysis.report(workdir).partition('The first of the samples:')[2]
  assert shown.split() == texts[0].split()
  reading = np.load(workdir / analysis.READING_DATA)
  core = config.core
  corpus = corpus_lib.open_corpus('wikitext2', config.data_dir)
  ids = np.asarray(corpus.ids['valid'][:40])
  assert list(reading['words']) == corpus.vocabulary.decode(ids)
  assert list(reading['words'][:3]) == ['w0', 'w1', 'w2']
  assert reading['attention'].shape == (40, core.num_heads, 1, 2)
  units = core.num_heads * core.head_size
  assert reading['forget_gate'].shape == (40, 1, units)
  # Twelve words later the text is the same again, but not one word later.
  head = reading['attention'][:, 0, 0, 1]
  np.testing.assert_allclose(head[24:28], head[12:16], atol=0.02)
  assert np.abs(head[12:24] - head[13:25]).max() > 0.05


def test_a_run_may_be_measured_otherwise_and_its_text_lie_elsewhere(tmp_path):
  config = short(tmp_path)
  save_config(config, tmp_path)
  (tmp_path / 'checkpoints' / '20').mkdir(parents=True)

  def check(**fields):
    text = configuration.to_json(
      'language_modeling', 'quick', dataclasses.replace(config, **fields)
    )
    configuration.check_workdir(tmp_path, text)

  check(data_dir='/elsewhere', eval_tokens=38, eval_lengths=(4,))
  with pytest.raises(ConfigurationError, match='window: 7 there, 8 now'):
    check(window=8)


def test_a_run_does_not_go_on_with_another_text(tmp_path, monkeypatch):
  # As many words, so that the checkpoint fits.
  other = {split: text.replace('w3', 'x3') for split, text in TEXTS.items()}
  workdir = tmp_path / 'run'
  config = short(tmp_path / 'data', num_steps=20)
  save_config(config, workdir)
  # Of a run that was stopped before anything was saved.
  (workdir / 'text.json').write_text('{"vocabulary": "of another"}')
  train.train(config, workdir)
  before = (workdir / 'metrics.jsonl').read_bytes()
  further = dataclasses.replace(config, num_steps=40)
  monkeypatch.setattr(
    corpus_lib.load, 'documents', lambda name, split, data_dir: [other[split]]
  )
  elsewhere = dataclasses.replace(further, data_dir=str(tmp_path / 'other'))
  with pytest.raises(ConfigurationError, match='another text: its vocabulary'):
    train.train(elsewhere, workdir)
  assert sample.main([str(workdir), f'--data_dir={tmp_path / "other"}']) == 77
  # The same words, but not as many of them.
  other = {split: 2 * text for split, text in TEXTS.items()}
  shorter = dataclasses.replace(further, data_dir=str(tmp_path / 'longer'))
  with pytest.raises(ConfigurationError, match='train, valid, test differ'):
    train.train(shorter, workdir)
  assert (workdir / 'metrics.jsonl').read_bytes() == before
  # Who has the text must say so, and the same in all processes.
  text = (workdir / 'text.json').read_text()
  for damaged in ('{"vocab', '7'):
    (workdir / 'text.json').write_text(damaged)
    with pytest.raises(ConfigurationError, match=r'text\.json cannot be read'):
      train.train(further, workdir)
  (workdir / 'text.json').unlink()
  with pytest.raises(ConfigurationError, match=r'but no text\.json'):
    train.train(further, workdir)
  (workdir / 'text.json').write_text(text)
  seen = []
  monkeypatch.setattr(
    train.distributed, 'check_same', lambda *same: seen.append(same)
  )
  train.train(further, workdir)
  assert read_metrics(workdir)[-1]['step'] == 40
  assert seen == [('text', text)]


def test_a_run_under_way_is_not_given_another_text(tmp_path):
  config = short(tmp_path / 'data')
  save_config(config, tmp_path / 'run')
  with lock.hold(tmp_path / 'run'):
    with pytest.raises(ConfigurationError, match='Another process is training'):
      train.train(config, tmp_path / 'run')
    assert not (tmp_path / 'run/text.json').exists()


def test_long_work_beats_the_watchdog(tmp_path, monkeypatch, capsys):
  beats = []
  monkeypatch.setattr(watchdog, 'beat', lambda: beats.append(None))
  corpus_lib.open_corpus('wikitext2', tmp_path, beat=watchdog.beat)
  # Once a document: the vocabulary and the ids of three splits.
  assert len(beats) == 4
  preemption = Preemption()
  train.make_tell(preemption, seconds_between_lines=0)('valid', 1234, 5678)
  assert len(beats) == 5
  assert capsys.readouterr().out == 'valid: 1,234 of 5,678 words\n'
  train.make_tell(preemption, seconds_between_lines=60)('valid', 1234, 5678)
  assert len(beats) == 6
  assert capsys.readouterr().out == ''


def test_long_work_can_be_asked_to_stop_and_begins_anew(
  trained, tmp_path, monkeypatch
):
  config, _ = trained
  workdir = tmp_path / 'run'
  config = dataclasses.replace(config, data_dir=str(tmp_path / 'data'))
  save_config(config, workdir)
  beats, ask_at = [], 2

  def beat():
    beats.append(None)
    if len(beats) == ask_at:
      signal.raise_signal(signal.SIGTERM)

  monkeypatch.setattr(watchdog, 'beat', beat)
  with pytest.raises(Preempted, match='made ready. The same command'):
    train.train(config, workdir)
  assert not list((tmp_path / 'data').glob('**/*.ids'))

  train.train(config, workdir)
  whole = (workdir / analysis.SUMMARY).read_bytes()
  (workdir / analysis.SUMMARY).unlink()
  ask_at = len(beats) + 4  # One is for the text, which is there.
  with pytest.raises(Preempted, match='measuring, valid in one unroll: 2'):
    train.train(config, workdir)
  assert not (workdir / analysis.SUMMARY).exists()
  train.train(config, workdir)
  assert (workdir / analysis.SUMMARY).read_bytes() == whole


def test_training_carries_the_state_from_window_to_window(data_dir):
  config = short(data_dir, num_steps=2)
  corpus = corpus_lib.open_corpus('wikitext2', data_dir)
  functions = train.make_functions(config, corpus)
  model = train.make_evaluated(config, corpus.vocabulary.size)
  state = parallel.place_state(functions.init())
  fresh = carried = model.initial_state(config.batch_size)
  num_windows = (len(corpus.ids['train']) - 1) // (4 * 7)
  for step in range(num_windows + 2):
    begins = step % num_windows == 0
    params = jax.device_get(train.local(state.params))
    batch = functions.batch_at(step)
    assert batch['reset'].all() == batch['reset'].any() == begins
    read = functools.partial(
      model.log_probs, params, batch['inputs'], batch['targets']
    )
    state, _ = functions.update(state, parallel.split_batch(batch))
    got = np.asarray(state.network_state)
    from_fresh, carried = read(fresh)[1], read(carried)[1]
    # Rounding of products that are otherwise divided.
    near = {'rtol': 1e-4, 'atol': 1e-5}
    if begins:  # A new epoch forgets the last one.
      carried = from_fresh
    else:
      assert not np.allclose(got, from_fresh, **near)
    np.testing.assert_allclose(got, carried, **near)


@pytest.mark.parametrize(
  'fields',
  [{'embedding_dropout': 0.9}, {'output_dropout': 0.9}, {'num_sampled': 3}],
)
def test_training_heeds_dropout_and_sampling(data_dir, fields):
  def first_loss(**fields):
    config = short(data_dir, **fields)
    corpus = corpus_lib.open_corpus('wikitext2', data_dir)
    functions = train.make_functions(config, corpus)
    batch = parallel.split_batch(functions.batch_at(0))
    _, metrics = functions.update(parallel.place_state(functions.init()), batch)
    return divide(metrics)['loss']

  assert first_loss() == first_loss()
  assert abs(first_loss(**fields) - first_loss()) > 1e-3


def test_a_run_that_was_stopped_goes_on_to_the_same_curve(data_dir, tmp_path):
  config = short(data_dir, num_steps=40, embedding_dropout=0.3)
  whole, parts = tmp_path / 'whole', tmp_path / 'parts'
  save_config(config, whole)
  train.train(config, whole)
  stopped = dataclasses.replace(config, num_steps=20)
  save_config(stopped, parts)
  train.train(stopped, parts)
  train.train(config, parts)
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
    ({'window': 0}, 'window must be >= 1'),
    ({'eval_lengths': (3, 0)}, 'eval_lengths must be >= 1'),
    ({'eval_lengths': (10.5,)}, r'eval_lengths takes tuple\[int, \.\.\.\]'),
    ({'eval_lengths': ('',)}, r"eval_lengths takes tuple.*; got \(''"),
    ({'vocabulary_size': 1}, 'vocabulary_size must be >= 2'),
    ({'vocabulary_size': 0}, 'vocabulary_size must be >= 2'),
    ({'head': 'free'}, 'head must be one of'),
    ({'embedding_dropout': 1.5}, 'embedding_dropout must be in'),
  ],
)
def test_settings_that_make_no_sense_are_named(fields, message):
  with pytest.raises(configuration.ConfigurationError, match=message):
    configuration.validate(config_of('quick', **fields))


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'window': 1000}, 'window=1000'),
    ({'vocabulary_size': 1}, 'at least 2 words'),
    ({'num_sampled': 50}, 'num_sampled must be at most vocab_size, 13'),
  ],
)
def test_what_the_text_cannot_give_is_named(
  data_dir, tmp_path, fields, message
):
  config = short(data_dir, **fields)
  save_config(config, tmp_path)
  with pytest.raises(configuration.ConfigurationError, match=message):
    train.train(config, tmp_path)


PROGRAM = """
import sys

from experiments import command_line
from experiments.language_modeling import sweep
from experiments.language_modeling import train

*flags, address, count, index = sys.argv[1:]
if count:
  flags += [f'--coordinator_address={address}', f'--num_processes={count}',
            f'--process_id={index}']
command_line.main(
    train.train, train.Config, sweep.PRESETS, experiment='language_modeling',
    preset='quick', argv=['page', *flags])
"""


@pytest.mark.slow
@pytest.mark.multiprocess
def test_a_job_of_two_processes_trains_on_the_same_text_as_one(tmp_path):
  books, data_dir = tmp_path / 'books', tmp_path / 'data'
  for split, text in TEXTS.items():
    (books / split).mkdir(parents=True)
    (books / split / 'book.txt').write_text(text)
  load.prepare('gutenberg/folder', data_dir=data_dir, manual_dir=books)
  flags = [
      '--config.corpus=gutenberg/folder', f'--config.data_dir={data_dir}',
      '--config.batch_size=6', '--config.window=7', '--config.num_steps=40',
      '--config.log_every=1', '--config.eval_every=20',
      '--config.core.head_size=3', '--config.eval_lengths=(5,)',
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
  assert 'perplexity' not in second_said  # The first one tells.
