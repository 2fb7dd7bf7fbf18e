"""Tests rmc_jax/models/encoder_decoder.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np
import optax
import pytest

from rmc_jax import RelationalMemory
from rmc_jax.models import encoder_decoder
from rmc_jax.models import EncoderDecoder
from tests.reference import encoder_decoder as reference

B, T_IN, T_OUT, TOKENS, START = 3, 7, 5, 11, 8
LENGTHS = (4, 0, 7)
HIDDEN, OUTPUT, LAYERS = 13, 17, (19, 23)

FEEDS = encoder_decoder.FEEDS
every_feed = pytest.mark.parametrize('feed', FEEDS)

# float32 rounding of values of order 1 over T_IN + T_OUT steps and a read-out;
# the largest logits are about 30, and rounded in proportion.
ATOL, RTOL = 1e-5, 1e-6


class Elman(hk.RNNCore):
  """The core of tests/reference, whose output differs from its state."""

  def __init__(self, name='elman'):
    super().__init__(name=name)

  def __call__(self, inputs, state):
    state = jnp.tanh(
      hk.Linear(HIDDEN, name='input')(inputs)
      + hk.Linear(HIDDEN, with_bias=False, name='hidden')(state)
    )
    return hk.Linear(OUTPUT, name='output')(state), state

  def initial_state(self, batch_size):
    return jnp.zeros((batch_size, HIDDEN))


CORES = {
  'elman': Elman,
  'relational': lambda name='core': RelationalMemory(2, 3, 4, name=name),
  'lstm': lambda name='core': hk.LSTM(9, name=name),
  'deep': lambda name='core': hk.deep_rnn_with_skip_connections(
    [hk.LSTM(6, name=f'{name}_0'), hk.LSTM(9, name=f'{name}_1')], name=name
  ),
}
every_core = pytest.mark.parametrize('core', CORES)


def make(core='elman', own_decoder=False, sizes=(B, T_IN), **kwargs):
  """Returns the transformed model, random parameters and a batch."""

  def model(inputs, input_lengths, targets, feed):
    return EncoderDecoder(
      CORES[core](),
      TOKENS,
      START,
      LAYERS,
      CORES[core](name='decoder') if own_decoder else None,
      **kwargs,
    )(inputs, input_lengths, targets, feed)

  net = hk.without_apply_rng(hk.transform(model))
  rng = np.random.default_rng(3)
  batch_size, num_steps = sizes
  batch = (
    rng.integers(TOKENS, size=(batch_size, num_steps)),
    np.resize(LENGTHS, batch_size),
    rng.integers(TOKENS, size=(batch_size, T_OUT)),
  )
  batch = tuple(jnp.asarray(x, jnp.int32) for x in batch)
  shapes = jax.eval_shape(
    lambda key: net.init(key, *batch, 'zeros'), jax.random.key(0)
  )
  params = jax.tree.map(
    lambda s: jnp.asarray(0.5 * rng.normal(size=s.shape), s.dtype), shapes
  )
  # Avoids compiling all small operations in every test.
  return net.init, jax.jit(net.apply, static_argnums=4), params, batch


@every_feed
# With T = B, a mask with swapped axes has the right shape.
@pytest.mark.parametrize(
  'own_decoder, sizes', [(False, (B, T_IN)), (True, (7, 7))]
)
def test_equals_the_reference(feed, own_decoder, sizes):
  _, apply, params, batch = make(own_decoder=own_decoder, sizes=sizes)
  logits = apply(params, *batch, feed)
  expected = reference.encoder_decoder(
    jax.tree.map(lambda x: np.asarray(x, np.float64), params),
    *map(np.asarray, batch),
    feed,
    num_tokens=TOKENS,
    start_token=START,
    num_layers=len(LAYERS),
    decoder='decoder' if own_decoder else 'elman',
  )
  assert logits.shape == (sizes[0], T_OUT, TOKENS)
  np.testing.assert_allclose(logits, expected, atol=ATOL, rtol=RTOL)
  if feed == 'predictions':  # The predictions vary, so they matter.
    assert len(np.unique(expected[0].argmax(-1))) > 1


@every_feed
def test_jit_changes_no_number(feed):
  _, apply, params, batch = make()
  np.testing.assert_allclose(
    apply.__wrapped__(params, *batch, feed),
    apply(params, *batch, feed),
    atol=ATOL,
  )


@every_core
def test_teacher_forcing_with_its_predictions_equals_predictions(core):
  _, apply, params, (inputs, lengths, targets) = make(core)
  free = apply(params, inputs, lengths, targets, 'predictions')
  forced = apply(params, inputs, lengths, free.argmax(-1), 'teacher_forcing')
  np.testing.assert_allclose(forced, free, atol=ATOL)
  other = apply(params, inputs, lengths, targets, 'teacher_forcing')
  assert np.abs(other - free).max() > 1e-3


@every_core
def test_ignores_inputs_after_their_length(core):
  _, apply, params, (inputs, lengths, targets) = make(core)
  logits = apply(params, inputs, lengths, targets, 'zeros')
  padding = np.arange(T_IN) >= np.asarray(lengths)[:, None]
  other = jnp.where(padding, (inputs + 1) % TOKENS, inputs)
  np.testing.assert_array_equal(
    logits, apply(params, other, lengths, targets, 'zeros')
  )
  # The last id within the length matters; example 1 has none.
  other = inputs.at[jnp.arange(B), lengths - 1].add(1) % TOKENS
  change = np.abs(apply(params, other, lengths, targets, 'zeros') - logits)
  assert ((change.max((1, 2)) > 1e-4) == [True, False, True]).all()


@every_feed
def test_only_teacher_forcing_reads_targets_and_only_past_ones(feed):
  _, apply, params, (inputs, lengths, targets) = make()
  logits = apply(params, inputs, lengths, targets, feed)
  for t in range(T_OUT):
    other = targets.at[:, t].add(1) % TOKENS
    change = np.abs(apply(params, inputs, lengths, other, feed) - logits)
    changed = change.max((0, 2)) > 0
    assert (
      changed == ((np.arange(T_OUT) > t) & (feed == 'teacher_forcing'))
    ).all()


@pytest.mark.parametrize(
  'core, feed',
  [
    ('relational', 'zeros'),
    ('relational', 'predictions'),
    ('lstm', 'teacher_forcing'),
    ('deep', 'zeros'),
  ],
)
def test_gradients_reach_every_parameter(core, feed):
  _, apply, params, batch = make(core)

  def loss(params):
    return jnp.sum(apply(params, *batch, feed) ** 2)

  gradients = jax.jit(jax.grad(loss))(params)
  for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
    assert np.isfinite(gradient).all(), path
    assert np.abs(gradient).max() > 0, path


@pytest.mark.parametrize('feed', ['teacher_forcing', 'predictions'])
def test_remat_changes_no_number(feed):
  results = []
  for remat in (False, True):
    _, apply, params, batch = make(remat=remat)

    def loss(params, apply=apply, batch=batch):
      return jnp.sum(apply(params, *batch, feed) ** 2)

    step = jax.value_and_grad(loss)
    # One loop of the encoder, one of the decoder.
    jaxpr = str(jax.make_jaxpr(loss)(params))
    assert jaxpr.count('prevent_cse=False') == (2 if remat else 0)
    results.append(jax.jit(step)(params))
  for actual, expected in zip(*map(jax.tree.leaves, results), strict=True):
    scale = np.abs(expected).max()  # gradients add up over the steps
    np.testing.assert_allclose(actual, expected, atol=ATOL * scale)


@every_core
@pytest.mark.parametrize('own_decoder', [False, True])
def test_parameters_do_not_depend_on_the_feed(core, own_decoder):
  init, _, params, batch = make(core, own_decoder)
  expected = jax.tree.map(jnp.shape, params)
  for feed in FEEDS:
    shapes = jax.eval_shape(
      lambda key, feed=feed: init(key, *batch, feed), jax.random.key(0)
    )
    assert jax.tree.map(jnp.shape, shapes) == expected


def test_parameter_names_and_count():
  _, _, shared, _ = make()
  _, _, apart, _ = make(own_decoder=True)
  core = (TOKENS + 1) * HIDDEN + HIDDEN**2 + (HIDDEN + 1) * OUTPUT
  widths = (OUTPUT, *LAYERS, TOKENS)
  read_out = sum(
    (a + 1) * b for a, b in zip(widths[:-1], widths[1:], strict=True)
  )
  assert hk.data_structures.tree_size(shared) == core + read_out
  assert hk.data_structures.tree_size(apart) == 2 * core + read_out
  layers = ('mlp/~/linear_0', 'mlp/~/linear_1', 'logits')
  assert set(shared) == {
    *(f'elman/{name}' for name in ('input', 'hidden', 'output')),
    *(f'encoder_decoder/{name}' for name in layers),
  }
  added = {f'decoder/{name}' for name in ('input', 'hidden', 'output')}
  assert set(apart) == set(shared) | added


@every_feed
def test_read_out_is_outside_the_loop_except_for_predictions(feed):
  _, apply, params, batch = make()
  jaxpr = str(jax.make_jaxpr(apply, static_argnums=4)(params, *batch, feed))
  at_once = f'f32[{T_OUT},{B},{TOKENS}] = dot_general'
  in_turn = f'f32[{B},{TOKENS}] = dot_general'
  assert (at_once in jaxpr) == (feed != 'predictions')
  assert (in_turn in jaxpr) == (feed == 'predictions')


@every_feed
def test_runs_under_a_policy(feed):
  policy = jmp.get_policy('params=float32,compute=bfloat16,output=float32')
  _, _, params, batch = make('relational')
  with hk.mixed_precision.push_policy(EncoderDecoder, policy):
    # A new function, as JAX caches traces without regard to policies.
    _, apply, _, _ = make('relational')
    narrow = apply(params, *batch, feed)
  _, apply, _, _ = make('relational')
  exact = apply(params, *batch, feed)
  assert narrow.dtype == jnp.float32
  # The first step, before predictions may differ. bfloat16 factors keep 8 bits,
  # 0.4 %, of terms of order 10 after T_IN steps and the read-out.
  difference = np.abs(narrow[:, 0] - exact[:, 0]).max()
  assert 1e-4 < difference < 0.1 * np.abs(exact).max()


def test_ids_out_of_range_have_a_one_hot_of_zeros():
  _, apply, params, (inputs, lengths, targets) = make()
  logits = [
    apply(params, inputs.at[0, 1].set(bad), lengths, targets, 'zeros')
    for bad in (TOKENS, -1)
  ]
  np.testing.assert_array_equal(*logits)


@pytest.mark.parametrize(
  'name, value, error, message',
  [
    ('feed', 'teacher', ValueError, "predictions, .*Got: 'teacher'"),
    ('inputs', np.ones((B, T_IN)), TypeError, 'inputs are float64'),
    ('lengths', np.ones(B), TypeError, 'input_lengths are float64'),
    ('targets', np.ones((B, T_OUT)), TypeError, 'targets are float64'),
    ('inputs', np.ones((B, T_IN, 1), int), ValueError, r'\(3, 7, 1\)'),
    ('lengths', np.ones(T_IN, int), ValueError, r'\(7,\)'),
    ('targets', np.ones((T_OUT, B), int), ValueError, r'\(5, 3\)'),
    ('targets', np.ones((B, 0), int), ValueError, r'\(3, 0\)'),
  ],
)
def test_refuses_a_bad_batch(name, value, error, message):
  _, apply, params, (inputs, lengths, targets) = make()
  batch = {'inputs': inputs, 'lengths': lengths, 'targets': targets}
  batch = batch | {'feed': 'zeros'} | {name: value}
  with pytest.raises(error, match=message):
    apply.__wrapped__(params, *batch.values())


@pytest.mark.parametrize(
  'kwargs, error, message',
  [
    ({'num_tokens': 0}, ValueError, 'num_tokens must be at least 1. Got: 0'),
    ({'num_tokens': 2.5}, TypeError, 'integer. Got: 2.5'),
    ({'start_token': TOKENS}, ValueError, r'0\.\.10\. Got: 11'),
    ({'start_token': '~'}, ValueError, "Got: '~'"),
    ({'decoder_core': hk.LSTM}, ValueError, r'13\].*Got: LSTMState'),
    ({'decoder_core': hk.GRU}, ValueError, r'13\].*Got: float32\[1, 14\]'),
  ],
)
def test_refuses_bad_settings(kwargs, error, message):
  def model():
    options = {'num_tokens': TOKENS, 'start_token': START} | kwargs
    if 'decoder_core' in options:
      options['decoder_core'] = options['decoder_core'](HIDDEN + 1)
    EncoderDecoder(Elman(), **options)

  with pytest.raises(error, match=message):
    hk.testing.transform_and_run(model)()


# The second trains with teacher forcing and is tested without.
@pytest.mark.parametrize(
  'core, feed, test_feed',
  [
    (lambda: RelationalMemory(2, 8, 2), 'zeros', 'zeros'),
    (lambda: hk.GRU(32), 'teacher_forcing', 'predictions'),
  ],
)
def test_learns_to_copy(core, feed, test_feed):
  symbols, length, batch_size, num_updates = 3, 3, 32, 300

  def model(ids, feed):
    lengths = jnp.full(len(ids), length)
    net = EncoderDecoder(core(), symbols + 1, symbols, (32,))
    return net(ids, lengths, ids, feed)

  net = hk.without_apply_rng(hk.transform(model))
  optimizer = optax.adam(3e-3)

  def loss(params, ids, feed):
    logits = net.apply(params, ids, feed)
    return optax.softmax_cross_entropy_with_integer_labels(logits, ids).mean()

  def update(carry, key):
    params, opt_state = carry
    ids = jax.random.randint(key, (batch_size, length), 0, symbols)
    value, gradients = jax.value_and_grad(loss)(params, ids, feed)
    updates, opt_state = optimizer.update(gradients, opt_state)
    return (optax.apply_updates(params, updates), opt_state), value

  everything = jnp.stack(
    jnp.meshgrid(*[jnp.arange(symbols)] * length), axis=-1
  ).reshape(-1, length)  # all 27 sequences
  params = jax.jit(net.init, static_argnums=2)(
    jax.random.key(0), everything, feed
  )
  (params, _), losses = jax.jit(lambda *args: jax.lax.scan(update, *args))(
    (params, optimizer.init(params)),
    jax.random.split(jax.random.key(1), num_updates),
  )
  assert losses[0] > 1.0  # ln 3 = 1.1 is chance
  final = jax.jit(loss, static_argnums=2)(params, everything, test_feed)
  assert final < 0.1, final
