"""Tests experiments/language_modeling/: sample.py and generate.py."""

import json
import shutil

import jax
import numpy as np
import pytest

from experiments.language_modeling import corpus as corpus_lib
from experiments.language_modeling import generate
from experiments.language_modeling import sample


def test_trained_model_continues_the_prompt(trained, capsys):
  _, workdir = trained
  assert (
    sample.main(
      [str(workdir), '--prompt=w0 w1', '--num_words=6', '--temperature=0']
    )
    == 0
  )
  words = capsys.readouterr().out.split()
  assert words[:2] == ['w0', 'w1']
  assert words[2:5] == ['w2', 'w3', 'w4']  # an end of line shows as one
  again = list(sample.sample(workdir, 'w3', 5, temperature=0.7, seed=1))
  assert again == list(sample.sample(workdir, 'w3', 5, temperature=0.7, seed=1))
  assert len(again) == 6


def test_text_continues_from_the_whole_prompt():
  words = tuple('abcdefg') + ('<eos>', '<unk>')
  vocabulary = corpus_lib.Vocabulary(words, (1,) * len(words))

  def read(word, state):  # The next word is as far on as words were read.
    state = state + word
    return jax.nn.one_hot(state % 7, 9), state

  start = -7  # the id of <eos>, which is read first
  # a=0 c=2 d=3: 5 is f; 5 + 5 = 3 is d; 10 + 3 = 6 is g.
  assert (
    ''.join(
      generate.generate(
        read, start, vocabulary, 'acd', 3, temperature=0, top_k=9
      )
    )
    == 'acdfdg'
  )


def test_line_ends_in_a_prompt_are_words(trained):
  def written(prompt):
    return list(sample.sample(trained[1], prompt, 1))[:-1]

  assert written('w1 w2') == ['w1', 'w2']
  assert written('w1\n\nw2') == ['w1', '<eos>', '<eos>', 'w2']
  assert written('w1 w2\n') == ['w1', 'w2', '<eos>']
  assert written('') == []


def test_draw_respects_temperature_and_top_k():
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


def test_unknown_words_are_drawn_only_with_the_flag():
  vocabulary = corpus_lib.Vocabulary(('a', '<unk>', '<eos>'), (9, 5, 1))
  log_probs = jax.numpy.log(jax.numpy.array([0.3, 0.6, 0.1]))

  def words(**options):
    return list(
      generate.generate(
        lambda word, state: (log_probs, state),
        None,
        vocabulary,
        ['<unk>'],
        300,
        **options,
      )
    )

  assert words(temperature=0, unknown=True) == ['<unk>'] * 301
  # The prompt is as it is.
  assert words(temperature=0) == ['<unk>'] + ['a'] * 300
  drawn = words()[1:]
  assert set(drawn) == {'a', '<eos>'}
  # 0.3 of 0.4; four standard deviations of a share of 300.
  assert drawn.count('a') / 300 == pytest.approx(0.75, abs=0.1)


def test_vocabulary_may_be_in_another_folder(trained, tmp_path, capsys):
  config, workdir = trained
  shutil.copytree(config.data_dir, tmp_path / 'moved')
  moved = tmp_path / 'run'
  shutil.copytree(workdir, moved)
  saved = json.loads((moved / 'config.json').read_text())
  saved['config']['data_dir'] = str(tmp_path / 'gone')
  (moved / 'config.json').write_text(json.dumps(saved))
  # Nothing but the words is needed.
  for ids in (tmp_path / 'moved').glob('**/*.ids'):
    ids.unlink()
  flags = ['--num_words=3', f'--data_dir={tmp_path / "moved"}']
  assert sample.main([str(moved), *flags]) == 0
  assert len(capsys.readouterr().out.split()) >= 2
  assert not list((tmp_path / 'moved').glob('**/*.ids'))


@pytest.mark.parametrize(
  'flags, message',
  [
    (['--temperature=-1'], 'at least 0. Got: -1.0'),
    (['--temperature=nan'], 'must be finite and at least 0. Got: nan'),
    (['--temperature=inf'], 'must be finite and at least 0. Got: inf'),
    (['--top_k=0'], '--top_k must be at least 1'),
    (['--top_k=14'], 'the vocabulary has 13 words'),
    (['--num_words=0'], '--num_words must be at least 1'),
  ],
)
def test_invalid_flags_are_refused(trained, capsys, flags, message):
  assert sample.main([str(trained[1]), *flags]) == 77
  assert message in capsys.readouterr().err


def test_folder_without_a_run_is_refused(tmp_path, capsys):
  assert sample.main([str(tmp_path)]) == 77
  assert 'not the folder of a run' in capsys.readouterr().err
  for damaged in ('{"experiment": ', '{"experiment": "a"}', '[]'):
    (tmp_path / 'config.json').write_text(damaged)
    assert sample.main([str(tmp_path)]) == 77
    assert 'config.json cannot be read' in capsys.readouterr().err
