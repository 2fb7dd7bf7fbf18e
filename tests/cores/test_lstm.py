"""Tests rmc_jax/cores/lstm.py; more are in test_every_core.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np
import pytest

import rmc_jax
from rmc_jax.cores.lstm import LSTM
from tests.reference import lstm as reference

# All sizes differ, so that swapped axes fail.
T, B, LAYERS, FEATURES, FEEDBACK, Y = 5, 2, 3, 13, 4, 7

# float32 rounding of one step on values of order 1; the measured difference
# from float64 is 3e-7.
ATOL = 5e-6


def make(num_layers=LAYERS, feedback_size=0, batch_size=B, **kwargs):
  """Returns a transformed step, random parameters and its arguments."""
  kwargs = {'hidden_size': Y, 'num_layers': num_layers, **kwargs}

  def step(inputs, state, feedback=None):
    core = LSTM(feedback_size=feedback_size, **kwargs)
    if feedback is None:
      return core(inputs, state)
    return core.step(core.project(inputs), state, feedback)

  rng = np.random.default_rng(0)

  def normal(*shape, scale=1.0):
    return jnp.asarray(scale * rng.normal(size=shape), jnp.float32)

  lead = () if batch_size is None else (batch_size,)
  args = [
    normal(*lead, FEATURES),
    tuple(
      hk.LSTMState(hidden=normal(*lead, Y), cell=normal(*lead, Y))
      for _ in range(num_layers)
    ),
  ]
  if feedback_size:
    args.append(normal(*lead, feedback_size))
  net = hk.without_apply_rng(hk.transform(step))
  shapes = jax.eval_shape(net.init, jax.random.key(1), *args)
  # Initial biases are zero, which would hide a missing bias.
  params = jax.tree.map(lambda s: normal(*s.shape, scale=0.3), shapes)
  return net._replace(apply=jax.jit(net.apply)), params, args


def assert_close(actual, expected):
  for a, e in zip(
    jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    np.testing.assert_allclose(a, e, atol=ATOL)


@pytest.mark.parametrize('num_layers', [1, 2, 3])
def test_equals_haiku_layers_with_skip_connections(num_layers):
  def haikus(inputs, state):
    core = hk.deep_rnn_with_skip_connections(
      [hk.LSTM(Y) for _ in range(num_layers)]
    )
    assert jax.tree.structure(state) == (
      jax.tree.structure(core.initial_state(B))
    )
    return hk.dynamic_unroll(core, inputs, state)

  haikus = hk.without_apply_rng(hk.transform(haikus))
  ours = hk.without_apply_rng(
    hk.transform(lambda *args: rmc_jax.unroll(LSTM(Y, num_layers), *args))
  )
  _, _, (_, state) = make(num_layers)
  rng = np.random.default_rng(3)
  inputs = jnp.asarray(rng.normal(size=(T, B, FEATURES)), jnp.float32)
  params, moved = {}, {}
  for i, (path, shapes) in enumerate(
    jax.eval_shape(haikus.init, jax.random.key(0), inputs, state).items()
  ):
    w, b = (0.3 * rng.normal(size=shapes[k].shape) for k in ('w', 'b'))
    params[path] = {'w': jnp.asarray(w, 'f'), 'b': jnp.asarray(b, 'f')}
    moved[f'lstm/input_{i}'] = {
      'w': params[path]['w'][:FEATURES],
      'b': params[path]['b'],
    }
    moved[f'lstm/recurrent_{i}'] = {'w': params[path]['w'][FEATURES:]}
  outputs, last = ours.apply(moved, inputs, state)
  expected_outputs, expected_last = haikus.apply(params, inputs, state)
  assert outputs.shape == (T, B, num_layers * Y)
  assert jax.tree.structure(last) == jax.tree.structure(expected_last)
  assert_close((outputs, last), (expected_outputs, expected_last))


@pytest.mark.parametrize('feedback_size', [0, FEEDBACK])
def test_step_equals_the_unit_by_unit_reference(feedback_size):
  net, params, args = make(feedback_size=feedback_size)
  params64, args64 = jax.tree.map(np.float64, (params, tuple(args)))
  assert_close(net.apply(params, *args), reference.lstm_step(params64, *args64))


def test_initial_state_is_zeros():
  def initial_state(batch_size):
    return hk.testing.transform_and_run(
      lambda: LSTM(Y, LAYERS).initial_state(batch_size)
    )()

  for batch_size, shape in ((B, (B, Y)), (None, (Y,))):
    state = initial_state(batch_size)
    assert [type(layer) for layer in state] == LAYERS * [hk.LSTMState]
    for leaf in jax.tree.leaves(state):
      np.testing.assert_array_equal(leaf, np.zeros(shape))


def test_initial_weights_start_like_one_joint_weight():
  # A normal truncated at two standard deviations has spread 0.8796.
  features, feedback_size, size = 300, 40, 60

  def step(inputs, feedback):
    core = LSTM(size, 2, feedback_size)
    return core.step(core.project(inputs), core.initial_state(1), feedback)

  params = jax.jit(hk.transform(step).init)(
    jax.random.key(0), jnp.ones((1, features)), jnp.ones((1, feedback_size))
  )
  for layer, fan_in in enumerate([400, 460]):
    inputs, recurrent = (
      params[f'lstm/{half}_{layer}'] for half in ('input', 'recurrent')
    )
    np.testing.assert_array_equal(inputs['b'], 0.0)
    joint = np.concatenate([inputs['w'], recurrent['w']])
    assert joint.shape == (fan_in, 4 * size)
    for w in (inputs['w'], recurrent['w']):
      scaled = np.asarray(w) * np.sqrt(fan_in)
      assert 1.9 < np.abs(scaled).max() <= 2.0 + 1e-5
      # 24,000 draws or more: five standard errors.
      assert abs(scaled.std() - 0.8796) < 5 * 0.88 / np.sqrt(2 * scaled.size)


@pytest.mark.parametrize(
  'size, count',
  [
    (1024, 12_959_744),
    (2048, 51_085_312),
  ],
)
def test_parameter_counts_at_paper_sizes(size, count):
  def step(inputs):
    core = LSTM(size, num_layers=2)
    return core(inputs, core.initial_state(1))

  params = jax.eval_shape(
    hk.transform(step).init, jax.random.key(0), jnp.zeros((1, 45))
  )
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count


def test_parameter_paths_and_shapes():
  _, params, _ = make(num_layers=2, feedback_size=FEEDBACK)
  gates = {'w': (FEATURES, 4 * Y), 'b': (4 * Y,)}
  assert jax.tree.map(jnp.shape, params) == {
    'lstm/input_0': gates,
    'lstm/recurrent_0': {'w': (FEEDBACK + Y, 4 * Y)},
    'lstm/input_1': gates,
    'lstm/recurrent_1': {'w': (FEEDBACK + 2 * Y, 4 * Y)},
  }


def test_policy_leaves_the_cell_unrounded():
  policy = jmp.get_policy('params=float32,compute=bfloat16,output=float32')
  net, params, args = make(num_layers=1)
  # An open forget gate and a closed input gate copy the cell.
  params = jax.tree.map(jnp.zeros_like, params)
  params['lstm/input_0']['b'] = jnp.repeat(
    jnp.array([-50.0, 0.0, 50.0, 0.0]), Y
  )
  with hk.mixed_precision.push_policy(LSTM, policy):
    _, (next_layer,) = net.apply(params, *args)
  cell = args[1][0].cell
  np.testing.assert_array_equal(next_layer.cell, cell)
  assert not np.array_equal(cell, cell.astype(jnp.bfloat16))


@pytest.mark.parametrize(
  'kwargs, error, message',
  [
    ({'hidden_size': 0}, ValueError, 'hidden_size must be at least 1. Got: 0'),
    ({'hidden_size': 2.5}, TypeError, 'hidden_size must be an integer'),
    ({'num_layers': 0}, ValueError, 'num_layers must be at least 1. Got: 0'),
    (
      {'feedback_size': -1},
      ValueError,
      'feedback_size must be at least .*Got: -1',
    ),
    ({'feedback_size': 1.5}, TypeError, 'feedback_size must be an integer'),
  ],
)
def test_refuses_bad_arguments(kwargs, error, message):
  kwargs = {'hidden_size': Y, **kwargs}
  with pytest.raises(error, match=message):
    hk.testing.transform_and_run(lambda: LSTM(**kwargs) and None)()


def layer(*shape):
  return hk.LSTMState(hidden=jnp.zeros(shape), cell=jnp.zeros(shape))


@pytest.mark.parametrize(
  'state',
  [
    (layer(B, Y),),  # a layer too few
    3 * (layer(B, Y),),
    (layer(B, Y), layer(B, Y + 1)),
    2 * (layer(B, Y + 1),),
    (layer(B, Y), layer(B + 1, Y)),
    (layer(B, Y), layer(Y)),
    2 * (layer(),),
    2 * (layer(T, B, Y),),
    layer(B, Y),  # bare: two arrays, but no two layers
    (),
    jnp.zeros((2, Y)),
  ],
)
def test_refuses_mismatched_states(state):
  net, params, (inputs, _) = make(num_layers=2)
  layer_shapes = r'LSTMState\(hidden=\(.*7,?\), cell=\(.*7,?\)\)'
  message = (
    r'lstm: the state has shapes .*'
    rf'expected \({layer_shapes}, {layer_shapes}\) or another batch axis'
  )
  with pytest.raises(ValueError, match=message):
    net.apply(params, inputs, state)


def test_refuses_mismatched_inputs():
  net, params, (inputs, state) = make()
  with pytest.raises(TypeError, match='lstm: inputs are int32.*one-hot'):
    net.apply(params, inputs.astype(int), state)
  with pytest.raises(ValueError, match=r'\(3, 13\), expected \[2, features'):
    net.apply(params, jnp.zeros((3, FEATURES)), state)


@pytest.mark.parametrize(
  'feedback_size, width, message',
  [
    (FEEDBACK, None, f'width 0, expected {FEEDBACK}'),
    (FEEDBACK, FEEDBACK + 1, f'width {FEEDBACK + 1}, expected {FEEDBACK}'),
    (0, FEEDBACK, f'width {FEEDBACK}, expected 0'),
  ],
)
def test_refuses_a_feedback_of_another_width(feedback_size, width, message):
  def step(inputs):
    core = LSTM(Y, LAYERS, feedback_size)
    feedback = None if width is None else jnp.ones((B, width))
    return core.step(core.project(inputs), core.initial_state(B), feedback)

  with pytest.raises(ValueError, match=message):
    hk.transform(step).init(jax.random.key(0), jnp.ones((B, 3)))


def test_bfloat16_inputs_set_the_dtype_of_the_input_weight_only():
  def step(inputs):
    core = LSTM(Y)
    return core(inputs, core.initial_state(B))

  params = hk.transform(step).init(
    jax.random.key(0), jnp.ones((B, 3), jnp.bfloat16)
  )
  assert params['lstm/input_0']['w'].dtype == jnp.bfloat16
  assert params['lstm/recurrent_0']['w'].dtype == jnp.float32
