"""Tests experiments/babi_memory_network: features, supervision and training."""

import ast
import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import configuration
from experiments.babi import analysis
from experiments.babi.questions import example_batch
from experiments.babi.questions import open_sets
from experiments.babi_memory_network import facts
from experiments.babi_memory_network import heuristic
from experiments.babi_memory_network import sweep
from experiments.babi_memory_network import train
from experiments.babi_memory_network.features import with_ngrams
from rmc_jax import training
from rmc_jax.models import memory_network
from tests.experiments.babi import runs

M = 5


config_of = functools.partial(runs.config_of, train, sweep)


def short(data_dir, supervision):
  return runs.shorten(
    config_of('quick', supervision=supervision),
    data_dir,
    epochs=6,
    embedding_size=12,
    num_hops=4,
  )


@pytest.mark.parametrize('preset', sweep.PRESETS)
def test_presets_are_valid(preset):
  config = config_of(preset)
  configuration.validate(config)
  assert config.run.num_steps % config.run.eval_every == 0


def test_sweeps_are_plain_data_and_name_presets():
  assert ast.literal_eval(repr(sweep.PRESETS)) == sweep.PRESETS
  presets = [
    run['preset'] for runs in sweep.SWEEPS.values() for run in runs.values()
  ]
  assert set(presets) == sweep.PRESETS.keys() - {'quick'}


def test_ngrams_follow_the_words(data_dir):
  words = open_sets('en', (2, 15), False, data_dir)
  sets = with_ngrams(words, 2)
  for group in range(2):
    size = words.sizes[group, 0]
    pairs = {}
    for leaf in ('story', 'question'):
      # Training numbers the pairs; the same pair has the same id.
      ids = getattr(words.train, leaf)[group].reshape(
        -1, words.sizes[:, 2].max()
      )
      features = getattr(sets.train, leaf)[group].reshape(len(ids), -1)
      for sentence, encoded in zip(ids[:200], features[:200], strict=True):
        sentence = [int(word) for word in sentence if word]
        encoded = [int(feature) for feature in encoded if feature]
        count = len(sentence)
        assert encoded[:count] == sentence
        wanted = list(zip(sentence, sentence[1:], strict=False))
        for pair, feature in zip(wanted, encoded[count:], strict=True):
          assert feature >= size
          assert pairs.setdefault(pair, feature) == feature
    assert len(set(pairs.values())) == len(pairs)
  np.testing.assert_array_equal(sets.train.answer, words.train.answer)


def test_ngrams_that_training_lacks_are_left_out(data_dir):
  words = open_sets('en', (2, 15), False, data_dir)
  test = words.test._replace(story=words.test.story[..., ::-1])  # new pairs
  sets = with_ngrams(words._replace(test=test), 3)
  assert sets.test.story.max() <= sets.train.story.max()
  assert (sets.test.story[..., -1] == 0).all()
  single = with_ngrams(words, 1)
  np.testing.assert_array_equal(single.test.story, words.test.story)


def test_facts_come_in_their_order_and_then_the_end():
  supporting = jnp.array([[0, 2, 0, 1, 0], [0, 0, 1, 0, 0], [3, 2, 1, 0, 0]])
  wanted = facts.in_order(supporting, 4)
  assert wanted.shape == (3, 4, M + 1)
  slots = [[np.flatnonzero(hop).tolist() for hop in each] for each in wanted]
  assert slots == [
    [[3], [1], [5], []],
    [[2], [5], [], []],
    [[2], [1], [0], [5]],
  ]


def test_unnamed_facts_are_refused(data_dir):
  sets = open_sets('en', (2, 15), False, data_dir)
  facts.check(sets)
  supporting = sets.train.supporting.copy()
  supporting[1, 7] = 0
  sets = sets._replace(train=sets.train._replace(supporting=supporting))
  with pytest.raises(configuration.ConfigurationError, match='file of task 15'):
    facts.check(sets)


def heuristic_batch():
  """Three questions with M statements of 4 features; words are below 20."""
  story = np.zeros((3, M, 4), np.int32)
  story[0] = [
    [1, 2, 0, 0],
    [3, 4, 0, 0],
    [1, 5, 9, 0],
    [7, 9, 1, 0],
    [9, 3, 0, 0],
  ]
  story[1, :2] = [[6, 2, 25, 0], [8, 8, 25, 0]]  # 25 is an n-gram
  story[2, :3] = [[4, 6, 0, 0], [5, 4, 0, 0], [6, 5, 0, 0]]
  return {
    'story': jnp.asarray(story),
    'question': jnp.array([[1, 0, 0, 0], [25, 0, 0, 0], [7, 6, 0, 0]]),
    'answer': jnp.array([9, 2, 3]),
    'sizes': jnp.full((3, 3), 20),
  }


def test_heuristic_wants_shared_words():
  # The first statement chosen is 3; then 9 is needed, and 7, 9 or 1.
  chosen = jnp.array([[3, 0], [1, 0], [2, 0]])
  found = heuristic.valid(heuristic_batch(), chosen).astype(int).tolist()
  assert found[0] == [[1, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0]]
  assert found[1][0] == [0] * 6  # Only an n-gram is shared.
  assert found[2] == [[1, 0, 1, 0, 0, 0], [0] * 6]  # No answer.


def test_heuristic_chooses_the_best_valid_statement():
  batch = heuristic_batch()
  choose = heuristic.choose_valid(batch)
  score = jnp.array(
    [
      [1.0, 9.0, 3.0, 2.0, 8.0, 0.0],
      [1.0, 2.0, 0.0, 0.0, 0.0, 9.0],
      [5.0, 6.0, 4.0, 0.0, 0.0, 9.0],
    ]
  )
  preference = memory_network.prefer(score, jnp.zeros(3))
  possible = jnp.array(
    [[1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]], bool
  )
  first = choose(0, preference, possible, [])
  assert first.tolist() == [2, 1, 0]  # In the second none is valid.
  second = choose(1, preference, possible, [jnp.array([3, 0, 2])])
  assert second.tolist() == [4, 0, 1]


@pytest.mark.parametrize('supervision', ['facts', 'heuristic'])
def test_loss_of_a_batch_is_the_sum_over_its_questions(data_dir, supervision):
  config = short(data_dir, supervision)
  sets = with_ngrams(open_sets('en', (2, 15), False, data_dir), 2)
  network = train.make_network(config, sets)
  params = network.init(jax.random.key(0), example_batch(sets))
  loss_fn = train.make_loss_fn(config, sets, network)

  def loss_of(rows):
    batch = {name: leaf[rows] for name, leaf in example_batch(sets).items()}
    loss, aux = loss_fn(params, {}, (), None, batch)
    assert aux.weight == len(rows)
    return float(loss)

  rows = np.arange(9)
  each = [loss_of(rows[n : n + 1]) for n in rows]
  assert min(each) > 0
  # Sums of float32 over stories of other lengths.
  assert loss_of(rows) == pytest.approx(sum(each), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize('supervision', ['facts', 'heuristic'])
def test_run_learns_and_resumes_to_the_same_errors(
  tmp_path, data_dir, capsys, supervision
):
  # Four members, one for each device of the tests.
  config = short(data_dir, supervision)
  errors = runs.run_and_resume(train, 'babi_memory_network', config, tmp_path)
  assert [each['set'] for each in errors] == ['task 2', 'task 15'] * 2
  score = analysis.score(errors)
  assert score.keys() == {2, 15}
  assert max(score.values()) < 0.7  # A guess has 80 %.
  assert '15: basic deduction' in capsys.readouterr().out


@pytest.mark.parametrize(
  'fields, message',
  [
    ({'version': 'hn'}, "version must be one of en, en-10k. Got: 'hn'"),
    ({'supervision': 'none'}, 'supervision must be one of facts, heuristic'),
    ({'restarts': 0}, 'restarts must be at least 1'),
    ({'tasks': (1, 21)}, 'tasks must be one of .* Got: 21'),
    (
      {'run': training.RunConfig(updates_per_call=2)},
      'run.updates_per_call must be 1',
    ),
    ({'num_hops': 0}, 'num_hops must be at least 1'),
  ],
)
def test_invalid_configuration_is_refused(fields, message):
  with pytest.raises(configuration.ConfigurationError, match=message):
    configuration.validate(config_of('quick', **fields))


@pytest.mark.parametrize(
  'module, flags, code, expected',
  [
    (
      'train',
      ['--preset=heuristic', '--print_config'],
      0,
      '"supervision": "heuristic"',
    ),
    ('analysis', [], 77, 'experiments.babi_memory_network.analysis'),
  ],
)
def test_programs_start(module, flags, code, expected):
  run = subprocess.run(
    [sys.executable, '-m', f'experiments.babi_memory_network.{module}', *flags],
    capture_output=True,
    text=True,
    check=False,
  )
  assert run.returncode == code
  assert expected in run.stdout + run.stderr
