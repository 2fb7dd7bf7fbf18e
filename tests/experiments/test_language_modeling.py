"""Tests experiments/language_modeling/ on a made-up corpus."""

import ast
import dataclasses
import json
import math
import pathlib

import jax
import numpy as np
import pytest

from experiments import configuration
from experiments.language_modeling import analysis
from experiments.language_modeling import corpus as corpus_lib
from experiments.language_modeling import generate
from experiments.language_modeling import perplexity
from experiments.language_modeling import sample
from experiments.language_modeling import sweep
from experiments.language_modeling import train
from rmc_jax.datasets import load
from rmc_jax.training import parallel
from rmc_jax.training import watchdog
from rmc_jax.training.exit_codes import ConfigurationError
from rmc_jax.training.log import read_metrics
from tests.training import jobs

# Every word is followed by its successor, in lines of eleven.
WORDS = [f'w{i}' for i in range(11)]
TEXTS = {
    'train': (' '.join(WORDS) + '\n') * 60,
    'valid': (' '.join(WORDS) + '\n') * 5,
    'test': (' '.join(WORDS[:7]) + ' unheard\n') * 6,
}


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


def config_of(preset, **fields):
  config = configuration.with_preset(train.Config, sweep.PRESETS, preset)
  return dataclasses.replace(config, **fields)


def short(data_dir, **fields):
  config = config_of(
      'quick',
      **{
          'data_dir': str(data_dir),
          'vocabulary_size': None,
          'embedding_size': 5,
          'embedding_dropout': 0.0,
          'batch_size': 4,
          'window': 7,
          'num_steps': 60,
          'eval_tokens': 37,
          'eval_lengths': (3, 10, 10_000),
          'log_every': 20,
          'eval_every': 20,
          'checkpoint_every': 20,
      }
      | fields,
  )
  config.core = dataclasses.replace(config.core, head_size=3)
  config.optimizer = dataclasses.replace(config.optimizer, learning_rate=0.02)
  return config


def save_config(config, workdir):
  configuration.save(
      workdir, configuration.to_json('language_modeling', 'quick', config)
  )


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  return tmp_path_factory.mktemp('data')


@pytest.fixture
def trained(data_dir, tmp_path_factory, documents):
  """A short run, by the experiment's own `train`; the same for all tests."""
  workdir = data_dir / 'run'
  config = short(data_dir)
  if not workdir.exists():
    save_config(config, workdir)
    train.train(config, workdir)
  return config, workdir


@pytest.mark.parametrize('preset', sweep.PRESETS)
def test_presets_are_valid(preset):
  configuration.validate(config_of(preset))


def test_sweep_is_plain_data():
  tree = ast.parse(pathlib.Path(sweep.__file__).read_text())
  assert not [
      node for node in ast.walk(tree)
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
  assert list(reading['words'][:3]) == ['w0', 'w1', 'w2']
  assert reading['attention'].shape == (40, core.num_heads, 1, 2)
  units = core.num_heads * core.head_size
  assert reading['forget_gate'].shape == (40, 1, units)


def test_perplexity_of_a_split_depends_on_no_window(trained):
  config, workdir = trained
  corpus = corpus_lib.open_corpus('wikitext2', config.data_dir)
  model = train.make_evaluated(config, corpus.vocabulary.size)
  params = sample.read_params(workdir, train.make_functions(config, corpus))
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
      model, params, ids, (9,), eos, batch_size=4,
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


def test_long_work_beats_the_watchdog(tmp_path, monkeypatch, capsys):
  beats = []
  monkeypatch.setattr(watchdog, 'beat', lambda: beats.append(None))
  corpus_lib.open_corpus('wikitext2', tmp_path)
  # Once a document: the vocabulary and the ids of three splits.
  assert len(beats) == 4
  train.make_tell(seconds_between_lines=0)('valid', 1234, 5678)
  assert len(beats) == 5
  assert capsys.readouterr().out == 'valid: 1,234 of 5,678 words\n'
  train.make_tell(seconds_between_lines=60)('valid', 1234, 5678)
  assert len(beats) == 6
  assert capsys.readouterr().out == ''


def test_frequency_bands_and_unigram_by_hand():
  vocabulary = corpus_lib.Vocabulary(
      ('the', '<eos>', 'cat', '<unk>'), (20_000, 10_000, 1000, 3)
  )
  ids = np.array([0, 1, 2, 3, 3])
  log_probs = np.log([0.5, 0.25, 0.125, 0.1, 0.4])
  bands = perplexity.by_frequency(log_probs, ids, vocabulary)
  assert bands['> 10,000'] == (pytest.approx(2.0), 1)
  assert bands['1,000 to 10,000'] == (pytest.approx(4.0), 1)
  assert bands['< 1,000'][1] == 3
  assert bands['< 1,000'][0] == pytest.approx((0.125 * 0.1 * 0.4) ** (-1 / 3))
  assert bands['all'][1] == 5
  total = 20_001 + 10_001 + 1001 + 4
  np.testing.assert_allclose(
      np.exp(perplexity.unigram_log_probs(ids, vocabulary)),
      np.array([20_001, 10_001, 1001, 4, 4]) / total,
  )


def test_training_carries_the_state_from_window_to_window(data_dir):
  config = short(data_dir, num_steps=2)
  corpus = corpus_lib.open_corpus('wikitext2', data_dir)
  functions = train.make_functions(config, corpus)
  model = train.make_evaluated(config, corpus.vocabulary.size)
  state = parallel.place_state(functions.init())
  params = jax.device_get(train.local(state.params))
  expected = model.initial_state(config.batch_size)
  batch = functions.batch_at(0)
  assert batch['reset'].all()
  _, expected = model.log_probs(
      params, batch['inputs'], batch['targets'], expected
  )
  state, _ = functions.update(state, parallel.split_batch(batch))
  np.testing.assert_allclose(
      state.network_state, expected, rtol=1e-4, atol=1e-5
  )
  # The first of a new epoch begins anew.
  first = functions.batch_at(1)
  assert not first['reset'].any()


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


def test_a_trained_model_goes_on_with_the_prompt(trained, capsys):
  _, workdir = trained
  assert sample.main([
      str(workdir), '--prompt=w3 w4', '--num_words=6', '--temperature=0'
  ]) == 0
  words = capsys.readouterr().out.split()
  assert words[:2] == ['w3', 'w4']
  assert len(words) >= 7  # an end of line shows as one
  again = list(sample.write(workdir, 'w3', 5, temperature=0.7, seed=1))
  assert again == list(sample.write(workdir, 'w3', 5, temperature=0.7, seed=1))
  assert len(again) == 6


def test_drawing_heeds_temperature_and_top_k():
  log_probs = jax.numpy.log(jax.numpy.array([0.1, 0.6, 0.05, 0.25]))
  keys = jax.random.split(jax.random.key(0), 4000)

  def shares(temperature, top_k):
    drawn = jax.vmap(lambda k: generate.draw(k, log_probs, temperature, top_k))
    return np.bincount(np.asarray(drawn(keys)), minlength=4) / 4000

  # Four standard deviations of a share of 4,000 are 0.03.
  given = np.array([0.1, 0.6, 0.05, 0.25])
  np.testing.assert_allclose(shares(1.0, None), given, atol=0.03)
  np.testing.assert_allclose(
      shares(1.0, 2), [0, 0.6 / 0.85, 0, 0.25 / 0.85], atol=0.03
  )
  squared = given**2
  np.testing.assert_allclose(
      shares(0.5, None), squared / squared.sum(), atol=0.03
  )
  assert shares(0, None)[1] == 1


def test_unknown_words_are_written_where_they_are_asked_for():
  vocabulary = corpus_lib.Vocabulary(('a', '<unk>', '<eos>'), (9, 5, 1))
  log_probs = jax.numpy.log(jax.numpy.array([0.3, 0.6, 0.1]))

  def words(**options):
    return list(
        generate.generate(
            lambda word, state: (log_probs, state), None, vocabulary,
            ['<unk>'], 300, **options,
        )
    )

  assert words(temperature=0, unknown=True) == ['<unk>'] * 301
  # The prompt is as it is.
  assert words(temperature=0) == ['<unk>'] + ['a'] * 300
  drawn = words()[1:]
  assert set(drawn) == {'a', '<eos>'}
  # 0.3 of 0.4; four standard deviations of a share of 300.
  assert drawn.count('a') / 300 == pytest.approx(0.75, abs=0.1)


@pytest.mark.parametrize('flags, message', [
    (['--temperature=-1'], '--temperature must be >= 0'),
    (['--top_k=0'], '--top_k must be >= 1'),
    (['--top_k=14'], 'the vocabulary has 13 words'),
    (['--num_words=0'], '--num_words must be >= 1'),
])
def test_bad_flags_of_sample_are_named(trained, capsys, flags, message):
  assert sample.main([str(trained[1]), *flags]) == 77
  assert message in capsys.readouterr().err


def test_sampling_from_no_run_is_said(tmp_path, capsys):
  assert sample.main([str(tmp_path)]) == 77
  assert 'it is no run' in capsys.readouterr().err


@pytest.mark.parametrize('fields, message', [
    ({'corpus': 'wiki'}, "corpus must be one of wikitext2.*'wiki'"),
    ({'window': 0}, 'window must be >= 1'),
    ({'head': 'free'}, 'head must be one of'),
    ({'embedding_dropout': 1.5}, 'embedding_dropout must be in'),
])
def test_settings_that_make_no_sense_are_named(fields, message):
  with pytest.raises(configuration.ConfigurationError, match=message):
    configuration.validate(config_of('quick', **fields))


@pytest.mark.parametrize('fields, message', [
    ({'window': 1000}, 'window=1000'),
    ({'vocabulary_size': 1}, 'at least 2 words'),
])
def test_what_the_text_cannot_give_is_named(
    data_dir, tmp_path, fields, message
):
  config = short(data_dir, **fields)
  save_config(config, tmp_path)
  with pytest.raises(configuration.ConfigurationError, match=message):
    train.train(config, tmp_path)


def test_the_tables_name_what_they_hold(tmp_path):
  bands = {'> 10,000': (3.0, 40), '< 1,000': (1234.5, 60), 'all': (9.0, 100)}
  for name, test in {'a': 9.0, 'b': 8.0}.items():
    workdir = tmp_path / name
    save_config(config_of('wikitext103'), workdir)
    (workdir / 'metrics.jsonl').write_text(
        '{"step": 1, "train": {"loss": 2.0}, "eval": {"loss": 1.0}}\n'
    )
    split = {
        'perplexity': test, 'unigram': 100.0, 'tokens': 100,
        'by_frequency': bands,
    }
    (workdir / analysis.SUMMARY).write_text(
        json.dumps({
            'uniform': 1000,
            'splits': {'valid': split, 'test': split},
            'by_length': {'10': 3.0},
        })
    )
  text = analysis.report(tmp_path / 'a', tmp_path / 'b')
  assert text.splitlines() == [
      'perplexity  valid  test   paper, valid  paper, test',
      'a           9.0    9.0    30.8          31.6',
      'b           8.0    8.0    30.8          31.6',
      'unigram     100.0  100.0',
      'uniform     1,000  1,000',
      '',
      'perplexity by count  > 10,000  < 1,000  all',
      'a                    3.0       1,234.5  9.0',
      'b                    3.0       1,234.5  9.0',
      'words                40        60       100',
      '',
      f'curve: {tmp_path / analysis.CURVES}',
      f'unroll length: {tmp_path / analysis.LENGTHS}',
  ]
  # Another text has other words to be frequent.
  other = tmp_path / 'b' / analysis.SUMMARY
  summary = json.loads(other.read_text()) | {'uniform': 2000}
  summary['splits']['test']['unigram'] = 200.0
  other.write_text(json.dumps(summary))
  text = analysis.report(tmp_path / 'a', tmp_path / 'b')
  assert text.splitlines()[3:7] == [
      'unigram, wikitext103 of 1,000 words  100.0  100.0',
      'uniform, wikitext103 of 1,000 words  1,000  1,000',
      'unigram, wikitext103 of 2,000 words  100.0  200.0',
      'uniform, wikitext103 of 2,000 words  2,000  2,000',
  ]
  path = tmp_path / 'a' / analysis.SUMMARY
  assert analysis.score(json.loads(path.read_text())) == 0.09
  path.unlink()
  with pytest.raises(ValueError, match='train it further'):
    analysis.report(tmp_path / 'a')


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
        ['-c', PROGRAM], [[*own, *alone]] * num_processes,
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
