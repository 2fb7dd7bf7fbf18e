"""Tests rmc_jax/models/language_model.py."""

import math

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rmc_jax
from rmc_jax.models import LanguageModel

B, T, V, D = 3, 5, 23, 16
# float32 rounding of products of order 1.
TOLERANCE = {'rtol': 2e-5, 'atol': 2e-5}


class Fading(hk.RNNCore):
  """A decaying sum of the inputs, halved in each step."""

  def __call__(self, inputs, state):
    state = 0.5 * state + inputs
    return jnp.concatenate([state, state**2], axis=-1), state

  def initial_state(self, batch_size):
    return jnp.zeros((batch_size, D))


class Passing(hk.RNNCore):
  """The identity."""

  def __call__(self, inputs, state):
    return inputs, state

  def initial_state(self, batch_size):
    return jnp.zeros((batch_size, 1))


def make(function, core=Fading, **options):
  """Returns a transformed function of the model, ids and parameters."""

  def apply(*args):
    settings = {
      'embedding_size': D,
      'embedding_dropout': 0.0,
      'block_size': 7,  # does not divide V
    } | options
    return function(LanguageModel(core(), V, **settings), *args)

  rng = np.random.default_rng(0)
  ids = jnp.asarray(rng.integers(V, size=(B, T + 1)), jnp.int32)
  net = hk.transform(apply)
  return net, ids[:, :-1], ids[:, 1:], rng


def read(model, inputs, targets, state=None, reset=None):
  state = model.initial_state(len(inputs)) if state is None else state
  hidden, state = model(inputs, state, reset)
  return model.log_probs(hidden, targets), model.all_log_probs(hidden), state


def expected_log_probs(params, inputs, start):
  """Returns log probs [B, T, V] and the last states from a float64 loop."""
  embeddings = np.asarray(params['language_model']['embeddings'], np.float64)
  projection = {
    k: np.asarray(v, np.float64)
    for k, v in params['language_model/projection'].items()
  }
  all_log_probs = np.zeros((B, T, V))
  states = np.array(start, np.float64)
  for b in range(B):
    for t in range(T):
      states[b] = 0.5 * states[b] + embeddings[inputs[b, t]]
      output = np.concatenate([states[b], states[b] ** 2])
      logits = embeddings @ (output @ projection['w'] + projection['b'])
      all_log_probs[b, t] = logits - np.log(np.exp(logits).sum())
  return all_log_probs, states


def test_equals_the_loop_over_positions():
  net, inputs, targets, rng = make(read)
  start = jnp.asarray(rng.normal(size=(B, D)), jnp.float32)
  params = jax.jit(net.init)(jax.random.key(0), inputs, targets, start)
  params = jax.tree.map(
    lambda p: jnp.asarray(rng.normal(size=p.shape), jnp.float32) / 3, params
  )
  got, got_all, state = jax.jit(net.apply)(params, None, inputs, targets, start)
  expected, states = expected_log_probs(params, inputs, start)
  np.testing.assert_allclose(got_all, expected, **TOLERANCE)
  np.testing.assert_allclose(state, states, **TOLERANCE)
  picked = np.take_along_axis(expected, np.asarray(targets)[..., None], -1)
  np.testing.assert_allclose(got, picked[..., 0], **TOLERANCE)


def test_carried_state_joins_windows_to_one_text():
  net, inputs, targets, _ = make(read)
  params = jax.jit(net.init)(jax.random.key(0), inputs, targets)
  whole, _, last = jax.jit(net.apply)(params, None, inputs, targets)
  first, _, state = jax.jit(net.apply)(
    params, None, inputs[:, :2], targets[:, :2]
  )
  rest, _, end = jax.jit(net.apply)(
    params, None, inputs[:, 2:], targets[:, 2:], state
  )
  np.testing.assert_allclose(
    np.concatenate([first, rest], 1), whole, **TOLERANCE
  )
  np.testing.assert_allclose(end, last, **TOLERANCE)


def test_reset_restores_the_initial_state_of_chosen_examples():
  net, inputs, targets, rng = make(read)
  params = jax.jit(net.init)(jax.random.key(0), inputs, targets)
  start = jnp.asarray(rng.normal(size=(B, D)), jnp.float32)
  reset = jnp.array([False, True, False])
  got, _, _ = jax.jit(net.apply)(params, None, inputs, targets, start, reset)
  carried, _, _ = jax.jit(net.apply)(params, None, inputs, targets, start)
  fresh, _, _ = jax.jit(net.apply)(params, None, inputs, targets)
  for b, expected in enumerate([carried, fresh, carried]):
    np.testing.assert_allclose(got[b], expected[b], **TOLERANCE)
  assert np.abs(carried[1] - fresh[1]).max() > 1e-3


def test_loss_is_the_weighted_sum_of_the_log_probs():
  def losses(model, inputs, targets, weights):
    hidden, _ = model(inputs, model.initial_state(len(inputs)))
    return (
      model.cross_entropy(hidden, targets, weights),
      model.cross_entropy(hidden, targets),
      model.log_probs(hidden, targets),
    )

  net, inputs, targets, rng = make(losses)
  weights = jnp.asarray(rng.uniform(size=(B, T)), jnp.float32).at[1, 2:].set(0)
  params = jax.jit(net.init)(jax.random.key(0), inputs, targets, weights)
  weighted, plain, log_probs = jax.jit(net.apply)(
    params, None, inputs, targets, weights
  )
  np.testing.assert_allclose(weighted[0], -(weights * log_probs).sum(), 1e-5)
  np.testing.assert_allclose(weighted[1], weights.sum(), 1e-6)
  np.testing.assert_allclose(plain[0], -log_probs.sum(), 1e-5)
  assert plain[1] == B * T


def test_the_adaptive_head_is_a_distribution_of_its_own_weights():
  net, inputs, targets, _ = make(read, head='adaptive', cutoffs=(6, 15))
  params = jax.jit(net.init)(jax.random.key(0), inputs, targets)
  assert {k: v.shape for k, v in params['language_model'].items()} == {
    'embeddings': (V, D),
    'head': (6 + 2, D),
    'tail_0_projection': (D, D // 4),
    'tail_0': (9, D // 4),
    'tail_1_projection': (D, D // 16),
    'tail_1': (8, D // 16),
  }
  got, everything, _ = jax.jit(net.apply)(params, None, inputs, targets)
  np.testing.assert_allclose(jnp.exp(everything).sum(-1), 1.0, rtol=1e-5)
  picked = np.take_along_axis(everything, np.asarray(targets)[..., None], -1)
  np.testing.assert_allclose(got, picked[..., 0], **TOLERANCE)


def test_sampled_loss_is_exact_only_with_all_words():
  def loss(model, inputs, targets, is_training):
    hidden, _ = model(inputs, model.initial_state(len(inputs)))
    return model.cross_entropy(hidden, targets, is_training=is_training)[0]

  values = {}
  for num_sampled in (0, 4, V):
    net, inputs, targets, _ = make(loss, num_sampled=num_sampled)
    params = net.init(jax.random.key(0), inputs, targets, False)
    values[num_sampled] = [
      float(net.apply(params, jax.random.key(1), inputs, targets, training))
      for training in (True, False)
    ]
  exact = values[0][1]
  np.testing.assert_allclose(values[V], exact, rtol=1e-5)
  assert values[4][1] == pytest.approx(exact, rel=1e-6)
  assert abs(values[4][0] - exact) > 0.1


@pytest.mark.parametrize('which', ['embedding_dropout', 'output_dropout'])
def test_dropout_has_its_rate_and_only_in_training(which):
  def hidden(model, inputs, targets, is_training):
    del targets
    out, _ = model(
      inputs, model.initial_state(len(inputs)), is_training=is_training
    )
    return out

  rate = 0.25
  net, inputs, targets, _ = make(hidden, Passing, **{which: rate})
  params = net.init(jax.random.key(0), inputs, targets, True)
  params['language_model/projection']['w'] = jnp.eye(D)
  quiet = net.apply(params, None, inputs, targets, False)
  noisy = jnp.stack(
    [
      net.apply(params, jax.random.key(seed), inputs, targets, True)
      for seed in range(40)
    ]
  )
  share = (noisy == 0).mean()
  assert abs(share - rate) < 0.02  # 9600 numbers: 4 standard deviations
  # The other values are scaled up.
  kept = np.asarray(noisy != 0)
  scale = np.asarray(noisy / jnp.broadcast_to(quiet, noisy.shape))[kept]
  np.testing.assert_allclose(scale, 1 / (1 - rate), rtol=1e-5)


def test_parameters_at_paper_size():
  """The 267,735 words of WikiText-103 give 214.7 million parameters."""

  def loss(inputs):
    core = rmc_jax.RelationalMemory(
      mem_slots=1, head_size=625, num_heads=4, attention_mlp_layers=5
    )
    model = LanguageModel(core, 267_735)
    hidden, _ = model(inputs, model.initial_state(1))
    return model.cross_entropy(hidden, inputs)

  shapes = jax.eval_shape(
    hk.transform(loss).init,
    jax.random.key(0),
    jax.ShapeDtypeStruct((1, 2), np.int32),
  )
  counts = {}
  for path, module in shapes.items():
    root = path.split('/')[0] if 'projection' not in path else 'projection'
    sizes = [math.prod(leaf.shape) for leaf in module.values()]
    counts[root] = counts.get(root, 0) + sum(sizes)
  assert counts['language_model'] == 267_735 * 512
  assert counts['projection'] == 2501 * 512
  assert round(sum(counts.values()) / 1e6, 1) == 214.7


@pytest.mark.parametrize(
  'options, error, message',
  [
    ({'head': 'free'}, ValueError, "head must be one of .*'free'"),
    ({'embedding_dropout': 1.0}, ValueError, 'embedding_dropout must be in'),
    ({'output_dropout': -0.1}, ValueError, 'output_dropout must be in'),
    ({'cutoffs': (5,)}, ValueError, "cutoffs must be empty with head='tied'"),
    ({'head': 'adaptive'}, ValueError, 'cutoffs must be one or more'),
    (
      {'head': 'adaptive', 'cutoffs': (5,), 'num_sampled': 3},
      ValueError,
      "num_sampled must be 0 with head='adaptive'",
    ),
    (
      {'num_sampled': V + 1},
      ValueError,
      f'num_sampled must be <= vocab_size, {V}',
    ),
    ({'embedding_size': 0}, ValueError, 'embedding_size must be at least 1'),
    ({'block_size': 2.5}, TypeError, 'block_size must be an integer'),
  ],
)
def test_refuses_bad_arguments(options, error, message):
  net, inputs, targets, _ = make(read, **options)
  with pytest.raises(error, match=message):
    net.init(jax.random.key(0), inputs, targets)
