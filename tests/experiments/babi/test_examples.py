"""Tests experiments/babi/examples.py."""

import json
import math
import types

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.babi import examples
from experiments.babi import hops
from experiments.babi import questions
from rmc_jax import training
from rmc_jax.tasks import babi
from rmc_jax.training import parallel

TASKS = (2, 15)
RESTARTS = 4
K, M = 5, 3  # Hops; slots, fewer than the statements of half the stories.


@pytest.fixture(params=[False, True], ids=['per task', 'joint'])
def sets(request, data_dir, monkeypatch):
  monkeypatch.setattr(babi, 'MEMORY_SIZE', M)
  return questions.open_sets('en', TASKS, request.param, data_dir)


def original(data_dir, task):
  """Yields statements, supporting ones, question and answer of a test file."""
  folder = data_dir / 'copy' / 'tasks_1-20_v1-2' / 'en'
  (path,) = folder.glob(f'qa{task}_*_test.txt')
  story = {}
  for line in path.read_text().splitlines():
    number, text = line.split(' ', 1)
    if number == '1':
      story = {}
    if '\t' in text:
      text, answer, supporting = text.split('\t')
      known = [(words, n in supporting.split()) for n, words in story.items()]
      yield known, text.strip().lower().removesuffix('?'), answer
    else:
      story[number] = text.lower().removesuffix('.')


def make_network(num_classes):
  """Attention and prediction depend on member, hop, words and place."""

  def apply(params, batch, linear):
    words = batch['story'].sum(-1, dtype=float)  # [B, M]
    scores = params['scale'][None, :, None] * words[:, None]  # [B, K, M]
    attention = jnp.where(linear, scores, jax.nn.softmax(scores))
    asked = batch['question'].sum(-1, dtype=int)  # [B]
    target = (asked + words.sum(-1).astype(int)) % num_classes
    logits = params['scale'].sum() * jax.nn.one_hot(target, num_classes)
    return logits, attention

  return hk.Transformed(lambda *_: {}, apply)


def make_state(num_members, linear=()):
  scale = np.random.default_rng(0).uniform(0.05, 0.2, (num_members, K))
  is_linear = [m in linear for m in range(num_members)]
  members = training.TrainState(
    params={'scale': jnp.asarray(scale, jnp.float32)},
    network_state={'linear': jnp.array(is_linear)},
    opt_state=(),
    step=jnp.zeros(num_members, int),
    key=jax.random.split(jax.random.key(0), num_members),
    carry=(),
  )
  state = parallel.place_state(training.create_ensemble(members))
  return state, scale


def make_errors(sets, selected):
  return [
    {
      'set': name,
      'restart': r,
      'train_error': 0.1 if r == selected[g] else 0.3,
      'train_loss': 0.2,
      # The selected member is the worst in test.
      'test_error': {'2': 0.9 if r == selected[g] else 0.0},
    }
    for g, name in enumerate(sets.names)
    for r in range(RESTARTS)
  ]


def softmax(scores):
  exponentials = [math.exp(score) for score in scores]
  return [each / sum(exponentials) for each in exponentials]


def write(tmp_path, sets, network, state, errors):
  examples.write(training.Runner(tmp_path), network, sets, state, errors)
  return json.loads((tmp_path / hops.EXAMPLES).read_text())


def expect(known, question, scale, ids, num_classes):
  """Returns statements, their attention, and the prediction, word by word."""
  known = known[-M:]
  words = [sum(ids[w] for w in text.split()) for text, _ in known]
  slots = words + [0] * (M - len(words))
  attention = [softmax([hop * each for each in slots]) for hop in scale]
  target = sum(ids[w] for w in question.split()) + sum(words)
  probability = softmax([sum(scale)] + [0.0] * (num_classes - 1))[0]
  return known, np.array(attention), target % num_classes, probability


def test_writes_the_first_questions_of_the_selected_members(
  tmp_path, data_dir, sets
):
  symbols = sets.vocabularies[0].symbols
  num_classes = len(symbols) + M
  selected = [2, 1][: len(sets.names)]
  state, scale = make_state(len(sets.names) * RESTARTS)
  found = write(
    tmp_path,
    sets,
    make_network(num_classes),
    state,
    make_errors(sets, selected),
  )
  assert [each['task'] for each in found] == [2, 15]
  assert [each['name'] for each in found] == [
    '2 supporting facts',
    'basic deduction',
  ]
  predictions = set()
  for i, each in enumerate(found):
    g = min(i, len(sets.names) - 1)
    assert (each['set'], each['restart']) == (sets.names[g], selected[g])
    assert not each['linear']
    texts = list(original(data_dir, each['task']))
    ids = {word: i for i, word in enumerate(sets.vocabularies[g].symbols)}
    expected = [
      expect(
        known, question, scale[g * RESTARTS + selected[g]], ids, num_classes
      )
      for known, question, _ in texts
    ]
    assert len(each['questions']) == 10
    for shown, (_, question, answer), (known, attention, target, p) in zip(
      each['questions'], texts[:10], expected[:10], strict=True
    ):
      assert (shown['question'], shown['answer']) == (question, answer)
      statements = shown['statements']
      assert [(s['text'], s['supporting']) for s in statements] == known
      weights = np.array([s['attention'] for s in statements])  # [S, K]
      # Numbers have four decimals.
      n = len(known)
      np.testing.assert_allclose(weights, attention[:, :n].T, atol=1e-4)
      empty = attention[:, n:].sum(1)
      np.testing.assert_allclose(shown['empty_slots'], empty, atol=1e-4)
      assert (weights.sum(0) < 1 + M * 1e-4).all()
      symbol = symbols[target] if target < len(symbols) else '<time>'
      assert shown['prediction'] == symbol
      assert shown['probability'] == pytest.approx(p, abs=1e-4)
      predictions.add(symbol)
    shares, uniform = [], []
    for known, attention, *_ in expected:
      if supporting := [m for m, (_, is_one) in enumerate(known) if is_one]:
        shares.append(attention[:, supporting].sum(1))
        uniform.append(len(supporting) / len(known))
    assert 500 < len(shares) < 1000  # Some are no longer in the memory.
    np.testing.assert_allclose(
      each['on_supporting'], np.mean(shares, 0), atol=1e-4
    )
    assert each['uniform'] == pytest.approx(np.mean(uniform), abs=1e-4)
  assert len(predictions) > 2
  assert '<time>' in predictions


def test_member_in_its_linear_start_has_no_softmax(tmp_path, sets):
  num_members = len(sets.names) * RESTARTS
  state, scale = make_state(num_members, linear=[num_members - 1])
  errors = make_errors(sets, [RESTARTS - 1] * len(sets.names))
  found = write(tmp_path, sets, make_network(30), state, errors)[-1]
  assert found['linear']
  ids = sets.vocabularies[-1].ids
  for statement in found['questions'][3]['statements']:
    words = sum(ids[word] for word in statement['text'].split())
    expected = words * scale[-1]
    np.testing.assert_allclose(statement['attention'], expected, atol=1e-4)


def test_files_without_supporting_statements_have_no_mean(tmp_path, sets):
  nothing = np.zeros_like(sets.test.supporting)
  sets = sets._replace(test=sets.test._replace(supporting=nothing))
  state, _ = make_state(len(sets.names) * RESTARTS)
  errors = make_errors(sets, [0] * len(sets.names))
  for each in write(tmp_path, sets, make_network(30), state, errors):
    assert each['on_supporting'] is None
    assert each['uniform'] is None


def test_only_the_primary_writes(tmp_path, sets):
  state, _ = make_state(len(sets.names) * RESTARTS)
  errors = make_errors(sets, [0] * len(sets.names))
  other = types.SimpleNamespace(is_primary=False, workdir=tmp_path)
  examples.write(other, make_network(30), sets, state, errors)
  assert not list(tmp_path.iterdir())
