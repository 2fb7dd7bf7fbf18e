"""Tests rmc_jax/cores/lstm_bank.py; more are in test_every_core.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import jax.test_util
import jmp
import numpy as np
import pytest

import rmc_jax
from rmc_jax.cores.lstm_bank import LSTMBank
from tests.reference import lstm_bank as reference

# All sizes differ. 17 units in 3 cells have a remainder of 2.
T, B, N, D, FEATURES, TOTAL = 4, 2, 3, 5, 7, 17

# float32 rounding of sums of 12 terms of order 1 over up to T steps; the
# measured difference is 1.5e-7.
ATOL = 2e-6

shared_or_not = pytest.mark.parametrize('share_weights', [False, True])


def make(how=None, **kwargs):
  """Returns a transformed function of a bank, parameters, inputs and a state.

  Args:
    how: called with (core, inputs, state); a step if None, and else on T steps.
    **kwargs: for the core.
  """

  def run(inputs, state):
    core = LSTMBank(TOTAL, N, **kwargs)
    return core(inputs, state) if how is None else how(core, inputs, state)

  rng = np.random.default_rng(0)

  def normal(*shape, scale=1.0):
    return jnp.asarray(scale * rng.normal(size=shape), jnp.float32)

  inputs = normal(*([] if how is None else [T]), B, FEATURES)
  state = hk.LSTMState(normal(B, N, D), normal(B, N, D))
  net = hk.without_apply_rng(hk.transform(run))
  shapes = jax.eval_shape(net.init, jax.random.key(0), inputs, state)
  # Initial biases are zero, which would hide a missing bias.
  params = jax.tree.map(lambda s: normal(*s.shape, scale=0.3), shapes)
  return net._replace(apply=jax.jit(net.apply)), params, inputs, state


def assert_close(actual, expected, atol=ATOL):
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  for a, e in zip(
    jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    np.testing.assert_allclose(a, e, atol=atol * max(1.0, np.abs(e).max()))


@shared_or_not
@pytest.mark.parametrize('summed', ['hidden', 'cell'])
def test_step_equals_the_cell_by_cell_reference(share_weights, summed):
  net, params, inputs, state = make(share_weights=share_weights, summed=summed)
  output, next_state = net.apply(params, inputs, state)
  expected, hidden, cell = reference.lstm_bank_step(
    jax.tree.map(np.float64, params),
    np.float64(inputs),
    *jax.tree.map(np.float64, state),
    summed=summed,
  )
  assert output.shape == (B, D)
  assert_close((output, next_state), (expected, hk.LSTMState(hidden, cell)))


@shared_or_not
def test_each_cell_is_haikus_lstm(share_weights):
  net, params, inputs, state = make(share_weights=share_weights)
  output, next_state = net.apply(params, inputs, state)
  weight, bias = params['lstm_bank/input']['w'], params['lstm_bank/input']['b']
  recurrent = params['lstm_bank/recurrent']['w']
  lstm = hk.without_apply_rng(hk.transform(lambda x, s: hk.LSTM(D)(x, s)))
  hiddens = []
  for j in range(N):
    x = inputs
    if share_weights:
      key = params['lstm_bank/keys']['embeddings'][j]
      x = jnp.concatenate([x, jnp.tile(key, (B, 1))], axis=-1)
      own = params['lstm_bank/key_gates']['w'], recurrent
      own = {'w': jnp.concatenate([weight, *own]), 'b': bias}
    else:
      w = weight.reshape(FEATURES, N, 4 * D)[:, j]
      b = bias.reshape(N, 4 * D)[j]
      own = {'w': jnp.concatenate([w, recurrent[j]]), 'b': b}
    cell_state = jax.tree.map(lambda s, j=j: s[:, j], state)
    hidden, expected = lstm.apply({'lstm/linear': own}, x, cell_state)
    # Sums of up to 17 products, split into two or three.
    assert_close(
      jax.tree.map(lambda s, j=j: s[:, j], next_state), expected, atol=1e-6
    )
    hiddens.append(hidden)
  assert_close(output, sum(hiddens), atol=1e-6)


def test_cells_that_share_weights_differ_by_their_keys_only():
  net, params, inputs, state = make(share_weights=True)
  same_start = jax.tree.map(jnp.zeros_like, state)
  _, after = net.apply(params, inputs, same_start)
  for j in range(N):
    for k in range(j):
      assert np.abs(after.hidden[:, j] - after.hidden[:, k]).min() > 1e-5
  alike = jax.tree.map(lambda p: p, params)
  alike['lstm_bank/keys']['embeddings'] = jnp.ones((N, D))
  _, after = net.apply(alike, inputs, same_start)
  np.testing.assert_array_equal(after.hidden[:, 0], after.hidden[:, 1])
  np.testing.assert_array_equal(after.hidden[:, 0], after.hidden[:, 2])


def test_cells_with_their_own_weights_are_independent():
  net, params, inputs, state = make()
  _, before = net.apply(params, inputs, state)
  recurrent = params['lstm_bank/recurrent']
  recurrent['w'] = recurrent['w'].at[1].add(1.0)
  _, after = net.apply(params, inputs, state)
  np.testing.assert_array_equal(before.hidden[:, 0::2], after.hidden[:, 0::2])
  assert np.abs(before.hidden[:, 1] - after.hidden[:, 1]).min() > 1e-5


RESET = np.zeros((T, B), bool)
RESET[2, 1] = RESET[0, 0] = True
LENGTHS = np.array([T, 3])


@shared_or_not
def test_unroll_equals_a_loop_over_the_reference(share_weights):
  def unroll(core, inputs, state):
    return rmc_jax.unroll(
      core,
      inputs,
      state,
      reset=jnp.asarray(RESET),
      lengths=jnp.asarray(LENGTHS),
    )

  net, params, inputs, state = make(unroll, share_weights=share_weights)
  expected_outputs = []
  hidden, cell = jax.tree.map(np.float64, state)
  for t, x in enumerate(np.float64(inputs)):
    hidden, cell = (
      np.where(RESET[t, :, None, None], 0.0, matrix)
      for matrix in (hidden, cell)
    )
    active = t < LENGTHS
    output, next_hidden, next_cell = reference.lstm_bank_step(
      jax.tree.map(np.float64, params), x, hidden, cell, summed='hidden'
    )
    expected_outputs.append(np.where(active[:, None], output, 0.0))
    hidden = np.where(active[:, None, None], next_hidden, hidden)
    cell = np.where(active[:, None, None], next_cell, cell)
  assert_close(
    net.apply(params, inputs, state),
    (np.stack(expected_outputs), hk.LSTMState(hidden, cell)),
  )


@shared_or_not
def test_gradients_equal_finite_differences(share_weights):
  net, *args = make(rmc_jax.unroll, share_weights=share_weights)
  with jax.enable_x64(True):
    args = jax.tree.map(lambda x: jnp.asarray(np.float64(x)), args)
    jax.test_util.check_grads(
      net.apply,
      args,
      order=1,
      modes=['rev'],
      # The third derivative, 1 to 100, times the square of the step 1e-4.
      atol=1e-5,
      rtol=1e-5,
    )


@pytest.mark.parametrize('batch_size', [B, None])
def test_initial_state_is_zero(batch_size):
  state = hk.testing.transform_and_run(
    lambda: LSTMBank(TOTAL, N).initial_state(batch_size)
  )()
  shape = (N, D) if batch_size is None else (B, N, D)
  assert jax.tree.map(jnp.shape, state) == hk.LSTMState(shape, shape)
  assert not any(np.any(leaf) for leaf in state)


def test_parameter_paths_and_shapes():
  _, params, _, _ = make()
  assert jax.tree.map(jnp.shape, params) == {
    'lstm_bank/input': {'w': (FEATURES, N * 4 * D), 'b': (N * 4 * D,)},
    'lstm_bank/recurrent': {'w': (N, D, 4 * D)},
  }
  _, params, _, _ = make(share_weights=True)
  assert jax.tree.map(jnp.shape, params) == {
    'lstm_bank/input': {'w': (FEATURES, 4 * D), 'b': (4 * D,)},
    'lstm_bank/recurrent': {'w': (D, 4 * D)},
    'lstm_bank/keys': {'embeddings': (N, D)},
    'lstm_bank/key_gates': {'w': (D, 4 * D)},
  }


@pytest.mark.parametrize(
  'total, cells, share_weights, count',
  [
    # N LSTMs of D units: N * (45 + D + 1) * 4 * D.
    (1024, 1, False, 4_382_720),
    (1024, 4, False, 1_236_992),
    (1024, 6, False, 881_280),
    # One LSTM of D units with keys for more inputs: and N * D of keys.
    (1024, 4, True, 572_416),
  ],
)
def test_parameter_counts_at_paper_sizes(total, cells, share_weights, count):
  def step(inputs):
    core = LSTMBank(total, cells, share_weights)
    return core(inputs, core.initial_state(1))

  params = jax.eval_shape(
    hk.transform(step).init, jax.random.key(0), jnp.zeros((1, 45))
  )
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count
  size = total // cells
  if share_weights:
    assert count == (45 + 2 * size + 1) * 4 * size + cells * size
  else:
    assert count == cells * (45 + size + 1) * 4 * size


@shared_or_not
def test_initial_parameters_are_those_of_haikus_lstm(share_weights):
  features, cells, size = 300, 2, 100

  def step(inputs):
    core = LSTMBank(cells * size, cells, share_weights)
    return core(inputs, core.initial_state(1))

  init = jax.jit(hk.transform(step).init)
  params = init(jax.random.key(0), jnp.ones((1, features)))
  np.testing.assert_array_equal(params['lstm_bank/input']['b'], 0.0)
  fan_in = features + (2 if share_weights else 1) * size
  scales = dict.fromkeys(params, fan_in**-0.5) | {'lstm_bank/keys': 1.0}
  for path, module in params.items():
    w = module.get('w', module.get('embeddings'))
    scaled = np.asarray(w) / scales[path]
    # A normal truncated at two standard deviations has spread 0.8796.
    assert np.abs(scaled).max() <= 2.0 + 1e-5, path
    # Ten standard errors of a spread over 40,000 draws, or 200 for keys.
    error = min(0.2, 10 * 0.88 / np.sqrt(scaled.size))
    assert abs(scaled.std() - 0.8796) < error, path


def test_policy_casts_the_output_but_not_the_state():
  policy = jmp.get_policy('params=float32,compute=bfloat16,output=bfloat16')
  net, params, inputs, state = make()
  # Closed input gates and open forget gates copy the cell.
  bias = jnp.repeat(jnp.array([-200.0, 0.0, 200.0, 0.0]), D)
  params['lstm_bank/input']['b'] = jnp.tile(bias, N)
  with hk.mixed_precision.push_policy(LSTMBank, policy):
    output, next_state = make()[0].apply(params, inputs, state)
  np.testing.assert_array_equal(next_state.cell, state.cell)
  assert next_state.hidden.dtype == jnp.float32
  assert output.dtype == jnp.bfloat16


@pytest.mark.parametrize(
  'args, error, message',
  [
    ((0, 1), ValueError, 'total_size must be at least 1. Got: 0'),
    ((17, 0), ValueError, 'num_cells must be at least 1. Got: 0'),
    ((17.0, 3), TypeError, 'total_size must be an integer. Got: 17.0'),
    ((3, 4), ValueError, 'total_size must be >= num_cells, 4.*Got: 3'),
    ((17, 3, False, 'c'), ValueError, "summed must be one of .*'c'"),
  ],
)
def test_refuses_bad_arguments(args, error, message):
  with pytest.raises(error, match=message):
    hk.testing.transform_and_run(lambda: LSTMBank(*args) and None)()
