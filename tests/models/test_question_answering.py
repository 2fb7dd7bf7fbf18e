"""Tests rmc_jax/models/question_answering.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.models import QuestionAnswering
from rmc_jax.models.memn2n import Sizes
from tests.cores.every_core import every_core
from tests.cores.every_core import FEATURES
from tests.reference import memn2n as reference

# B examples, M statements, J words, V symbols, d units.
B, M, J, V, D = 3, 5, 4, 11, FEATURES
HIDDEN = 7
LENGTHS = (3, M, 0)  # statements of each story


def transform(core):
  @hk.without_apply_rng
  @hk.transform
  def network(story, question, sizes=None):
    model = QuestionAnswering(core(), V, D, (HIDDEN,), init_stddev=1.0)
    return model(story, question, sizes)

  return network


def draw():
  """Returns stories with empty slots, and questions; both have padding."""
  generator = np.random.default_rng(0)
  story = generator.integers(1, V, (B, M, J))
  question = generator.integers(1, V, (B, J))
  for b, length in enumerate(LENGTHS):
    story[b, length:] = 0
  story[0, 1, 2:] = story[1, 4, 3:] = question[1, 1:] = 0
  return story.astype(np.int32), question.astype(np.int32)


def make(core=lambda: hk.LSTM(9)):
  network = transform(core)
  story, question = draw()
  params = jax.jit(network.init)(jax.random.key(0), story, question)
  return jax.jit(network.apply), params, story, question


@every_core
def test_core_reads_the_statements_oldest_first_and_then_the_question(build):
  apply, params, story, question = make(build)
  logits = apply(params, story, question)
  assert logits.shape == (B, V)
  own = params['question_answering']
  table = np.array(own['embedding'], float)
  table[0] = 0

  def embed(words):
    return reference.embed(table, words, 'position', columns=J)

  @hk.without_apply_rng
  @hk.transform
  def read(inputs):
    core = build()
    state = core.initial_state(1)
    *statements, question = inputs
    for statement in statements:
      _, state = core(statement[None], state)
    return core(question[None], state)[0][0]

  def weights(layer):
    return (np.asarray(params[f'question_answering/{layer}'][k]) for k in 'wb')

  for b, length in enumerate(LENGTHS):
    inputs = [embed(story[b, slot]) for slot in reversed(range(length))]
    inputs.append(embed(question[b]) + np.asarray(own['question']))
    output = read.apply(params, jnp.asarray(np.stack(inputs), jnp.float32))
    w, bias = weights('mlp/~/linear_0')
    hidden = np.maximum(np.asarray(output) @ w + bias, 0)
    w, bias = weights('logits')
    # float32 products in another order, over up to M + 1 steps.
    np.testing.assert_allclose(logits[b], hidden @ w + bias, atol=5e-5)


def test_empty_slots_and_words_change_nothing():
  apply, params, story, question = make()
  expected = apply(params, story, question)
  padded = np.pad(story, ((0, 0), (0, 3), (0, 2)))
  got = apply(
    params, padded, np.pad(question, ((0, 0), (0, 2))), Sizes(V, M, J)
  )
  # float32 sums of arrays of another length.
  np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('axis', ['statements', 'words'])
def test_order_matters(axis):
  apply, params, story, question = make()
  swapped = story.copy()
  if axis == 'statements':
    swapped[1, [0, 1]] = story[1, [1, 0]]
  else:
    swapped[1, 0, [0, 1]] = story[1, 0, [1, 0]]
  assert (swapped != story).any()
  before = apply(params, story, question)
  after = apply(params, swapped, question)
  assert np.abs(before[1] - after[1]).max() > 1e-3
  np.testing.assert_array_equal(before[::2], after[::2])


def test_a_question_is_not_a_statement():
  apply, params, story, question = make()
  as_statement = jax.tree.map(lambda x: x, params)
  as_statement['question_answering']['question'] *= 0
  before = apply(params, story, question)
  assert np.abs(before - apply(as_statement, story, question)).max() > 1e-3


@every_core
def test_gradient_reaches_every_word_that_is_read(build):
  apply, params, story, question = make(build)

  def loss(params):
    logits = apply(params, story, question)
    return jax.nn.logsumexp(logits, axis=-1).sum()

  gradient = jax.grad(loss)(params)['question_answering']
  read = np.zeros(V, bool)
  read[np.unique([*story.ravel(), *question.ravel()])] = True
  read[0] = False  # nil
  np.testing.assert_array_equal(
    np.asarray(gradient['embedding']).any(axis=1), read
  )
  assert np.asarray(gradient['question']).all()


def test_classes_beyond_the_vocabulary_of_a_task_are_impossible():
  apply, params, story, question = make()
  logits = apply(params, story % 6, question % 6, Sizes(6, M, J))
  assert np.isfinite(logits[:, :6]).all()
  assert np.isneginf(logits[:, 6:]).all()


@pytest.mark.parametrize(
  'arguments, message',
  [
    ({'vocabulary_size': 1}, 'vocabulary_size must be at least 2. Got: 1'),
    ({'embedding_size': 0}, 'embedding_size must be at least 1. Got: 0'),
    ({'hidden_sizes': (3, 0)}, r'hidden_sizes\[1\] must be at least 1. Got: 0'),
  ],
)
def test_invalid_arguments_are_refused(arguments, message):
  arguments = {'vocabulary_size': V} | arguments
  model = hk.transform(
    lambda: QuestionAnswering(hk.LSTM(9), **arguments) and None
  )
  with pytest.raises(ValueError, match=message):
    model.init(None)
