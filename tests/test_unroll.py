"""Tests rmc_jax/unroll.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rmc_jax
from rmc_jax.unroll import REMAT_POLICIES

T, B, FEATURES, ROWS = 6, 3, 5, 9
N, H, V = 2, 4, 7

CORES = {
  'relational': lambda: rmc_jax.RelationalMemory(N, V, H, num_blocks=2),
  'memory_gates': lambda: rmc_jax.RelationalMemory(
    N, V, H, gate_style='memory'
  ),
  'ungated': lambda: rmc_jax.RelationalMemory(N, V, H, gate_style=None),
  'paper': lambda: rmc_jax.PaperRelationalMemory(N, V, H),
  'lstm': lambda: hk.LSTM(11),
  'gru': lambda: hk.GRU(11),
  'deep': lambda: hk.DeepRNN(
    [rmc_jax.RelationalMemory(N, V, H), jnp.tanh, hk.LSTM(11)]
  ),
}

# Products of T * B and of B rows may round differently, for values of order 1
# over up to T steps. Measured: 1e-6.
ATOL = 1e-5


def run(core, how, inputs=None, batch_size=B, gradients=False, **kwargs):
  """Returns outputs, final state and optionally gradients of an unroll."""
  if inputs is None:
    inputs = make_inputs()

  def forward(inputs, state):
    return how(CORES[core](), inputs, state, **kwargs)

  def initial_state():
    return CORES[core]().initial_state(batch_size)

  net = hk.without_apply_rng(hk.transform(forward))
  # Not the initial state, so that ignoring the state fails.
  state = jax.tree.map(
    lambda s: s + 0.3, hk.testing.transform_and_run(initial_state)()
  )
  params = fill(jax.eval_shape(net.init, jax.random.key(0), inputs, state))

  if not gradients:
    return jax.jit(net.apply)(params, inputs, state)

  def loss(params, inputs, state):
    outputs, final_state = net.apply(params, inputs, state)
    weighted = jax.tree.map(weighted_sum, (outputs, final_state))
    return sum(jax.tree.leaves(weighted)), (outputs, final_state)

  return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(
    params, inputs, state
  )


def fill(shapes):
  """Returns parameters of given shapes without compiling initialisers."""
  rng = np.random.default_rng(2)
  return jax.tree.map(
    lambda s: jnp.asarray(0.3 * rng.normal(size=s.shape), s.dtype), shapes
  )


def make_inputs(*shape):
  shape = shape or (T, B, FEATURES)
  return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


def weighted_sum(x):
  """Sums `x` with distinct weights."""
  weights = np.random.default_rng(1).normal(size=x.shape)
  return jnp.sum(x * jnp.asarray(weights, x.dtype))


def assert_close(actual, expected, atol=ATOL):
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  for a, e in zip(
    jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    scale = max(1.0, np.abs(e).max())  # gradients add up over T * B rows
    np.testing.assert_allclose(a, e, atol=atol * scale)


@pytest.mark.parametrize('core', CORES)
def test_equals_dynamic_unroll(core):
  assert_close(
    run(core, rmc_jax.unroll, gradients=True),
    run(core, hk.dynamic_unroll, gradients=True),
  )


@pytest.mark.parametrize('core', ['relational', 'paper'])
def test_matrix_inputs_equal_dynamic_unroll(core):
  def loop(core, inputs, state):
    return hk.dynamic_unroll(
      lambda x, state: core(x, state, treat_input_as_matrix=True),
      inputs,
      state,
    )

  inputs = make_inputs(T, B, ROWS, FEATURES)
  assert_close(
    run(
      core,
      rmc_jax.unroll,
      inputs,
      gradients=True,
      treat_input_as_matrix=True,
    ),
    run(core, loop, inputs, gradients=True),
  )


@pytest.mark.parametrize('core', ['relational', 'paper', 'lstm'])
def test_batch_major_equals_time_major(core):
  inputs = make_inputs()
  reset = jnp.zeros((T, B), bool).at[2, 1].set(True)
  lengths = jnp.array([6, 4, 1])
  outputs, state = run(
    core, rmc_jax.unroll, inputs, reset=reset, lengths=lengths
  )
  swapped, same_state = run(
    core,
    rmc_jax.unroll,
    inputs.swapaxes(0, 1),
    time_major=False,
    reset=reset.swapaxes(0, 1),
    lengths=lengths,
  )
  assert_close((swapped.swapaxes(0, 1), same_state), (outputs, state))


@pytest.mark.parametrize('core', ['relational', 'paper', 'lstm'])
def test_unbatched_equals_one_example_of_a_batch(core):
  inputs = make_inputs()
  reset = jnp.zeros((T, B), bool).at[2, 1].set(True)
  lengths = jnp.array([6, 4, 5])
  outputs, _ = run(core, rmc_jax.unroll, inputs, reset=reset, lengths=lengths)
  single, _ = run(
    core,
    rmc_jax.unroll,
    inputs[:, 1],
    batch_size=None,
    reset=reset[:, 1],
    lengths=lengths[1],
  )
  assert_close(single, outputs[:, 1])


@pytest.mark.parametrize('core', ['relational', 'paper', 'lstm', 'deep'])
def test_reset_equals_reset_core(core):
  reset = np.zeros((T, B), bool)
  reset[0, 0] = reset[3, 2] = reset[3, 1] = reset[5, 2] = True

  def with_reset_core(core, inputs, state):
    return hk.dynamic_unroll(
      hk.ResetCore(core), (inputs, jnp.asarray(reset)), state
    )

  assert_close(
    run(core, rmc_jax.unroll, gradients=True, reset=jnp.asarray(reset)),
    run(core, with_reset_core, gradients=True),
  )


def test_reset_discards_only_earlier_steps():
  inputs = make_inputs()
  reset = jnp.zeros((T, B), bool).at[3, 1].set(True)
  before, _ = run('relational', rmc_jax.unroll, inputs, reset=reset)
  changed = inputs.at[2].add(1.0)
  after, _ = run('relational', rmc_jax.unroll, changed, reset=reset)
  np.testing.assert_array_equal(before[3:, 1], after[3:, 1])
  assert np.abs(before[3:, 0] - after[3:, 0]).max() > 1e-3


@pytest.mark.parametrize('core', ['relational', 'paper', 'lstm', 'deep'])
def test_lengths_equal_shorter_sequences(core):
  lengths = [4, 0, 6]
  outputs, state = run(core, rmc_jax.unroll, lengths=jnp.asarray(lengths))
  for b, length in enumerate(lengths):
    assert not np.any(outputs[length:, b])
    if length == 0:
      continue
    expected, expected_state = run(core, rmc_jax.unroll, make_inputs()[:length])
    assert_close(outputs[:length, b], expected[:, b])
    assert_close(
      jax.tree.map(lambda s, b=b: s[b], state),
      jax.tree.map(lambda s, b=b: s[b], expected_state),
    )


def test_reset_after_the_end_keeps_the_state():
  reset = jnp.zeros((T, B), bool).at[4, 0].set(True)
  lengths = jnp.array([4, 6, 6])
  _, state = run('relational', rmc_jax.unroll, lengths=lengths)
  _, same = run('relational', rmc_jax.unroll, lengths=lengths, reset=reset)
  np.testing.assert_array_equal(state[0], same[0])


@pytest.mark.slow
@pytest.mark.parametrize('core', ['memory_gates', 'paper'])
def test_gradients_with_all_options_at_once(core):
  reset = np.zeros((B, T), bool)
  reset[1, 2] = reset[2, 4] = True
  lengths = [T, 4, 5]
  inputs = make_inputs(B, T, ROWS, FEATURES)

  def by_hand(core, inputs, state):
    # Single steps of each example in Python.
    outputs, states = [], []
    for b, length in enumerate(lengths):
      one = jax.tree.map(lambda s, b=b: s[b : b + 1], state)
      rows = []
      for t in range(T):
        if t >= length:
          rows.append(jnp.zeros_like(rows[0]))
          continue
        before = core.initial_state(1) if reset[b, t] else one
        row, one = core(inputs[b : b + 1, t], before, True)
        rows.append(row)
      outputs.append(jnp.stack(rows, axis=1))
      states.append(one)
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states)
    return jnp.concatenate(outputs), joined

  assert_close(
    run(
      core,
      rmc_jax.unroll,
      inputs,
      gradients=True,
      treat_input_as_matrix=True,
      time_major=False,
      reset=jnp.asarray(reset),
      lengths=jnp.asarray(lengths),
      remat=True,
    ),
    run(core, by_hand, inputs, gradients=True),
  )


@pytest.mark.parametrize(
  'remat', [False, True, *REMAT_POLICIES, jax.checkpoint_policies.dots_saveable]
)
def test_remat_and_unroll_change_no_number(remat):
  core = 'memory_gates'
  assert_close(
    run(core, rmc_jax.unroll, gradients=True, remat=remat, unroll=2),
    run(core, rmc_jax.unroll, gradients=True),
  )


def test_remat_keeps_fewer_activations():
  def residuals(remat):
    def loss(inputs):
      core = CORES['relational']()
      return rmc_jax.unroll(core, inputs, core.initial_state(B), remat=remat)[
        0
      ].sum()

    net = hk.without_apply_rng(hk.transform(loss))
    inputs = make_inputs(40, B, FEATURES)
    params = jax.eval_shape(net.init, jax.random.key(0), inputs)
    compiled = jax.jit(jax.grad(net.apply)).lower(params, inputs).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  assert residuals(True) < 0.5 * residuals(False)
  assert residuals(None) < 0.8 * residuals(False)


def test_return_all_states():
  outputs, states = run('paper', rmc_jax.unroll, return_all_states=True)
  _, final_state = run('paper', rmc_jax.unroll)
  np.testing.assert_array_equal(outputs, states.hidden.reshape(T, B, -1))
  assert_close(jax.tree.map(lambda s: s[-1], states), final_state)


@pytest.mark.parametrize(
  'core, blocks, gates',
  [
    ('relational', 2, {'input': H * V, 'forget': H * V}),
    ('memory_gates', 1, {'input': 1, 'forget': 1}),
    ('ungated', 1, {}),
    ('paper', 1, {'input': H * V, 'forget': H * V, 'output': H * V}),
  ],
)
def test_trace_of_every_step_and_block(core, blocks, gates):
  inputs = make_inputs(T, B, ROWS, FEATURES)
  (outputs, trace), _ = run(
    core,
    rmc_jax.unroll,
    inputs,
    treat_input_as_matrix=True,
    return_trace=True,
  )
  expected, _ = run(core, rmc_jax.unroll, inputs, treat_input_as_matrix=True)
  assert_close(outputs, expected)
  assert trace.attention.shape == (T, B, blocks, H, N, N + ROWS)
  # Rows of a softmax, each weight rounded to 6e-8.
  np.testing.assert_allclose(trace.attention.sum(-1), 1.0, atol=1e-6)
  assert {k: v.shape for k, v in trace.gates.items()} == {
    name: (T, B, N, width) for name, width in gates.items()
  }


def test_unused_trace_takes_no_memory():
  def compiled(return_trace):
    def forward(inputs):
      core = CORES['relational']()
      return rmc_jax.unroll(
        core, inputs, core.initial_state(B), return_trace=return_trace
      )

    net = hk.without_apply_rng(hk.transform(forward))
    params = jax.eval_shape(net.init, jax.random.key(0), make_inputs())
    lowered = jax.jit(net.apply).lower(params, make_inputs())
    return lowered.compile().as_text()

  kept = f'f32[{T},{B},2,{H},{N},{N + 1}]'
  assert kept in compiled(True)
  assert kept not in compiled(False)


def test_projections_are_outside_the_loop():
  def forward(inputs):
    core = rmc_jax.RelationalMemory(N, V, H)
    return rmc_jax.unroll(core, inputs, core.initial_state(B))

  net = hk.without_apply_rng(hk.transform(forward))
  params = jax.eval_shape(net.init, jax.random.key(0), make_inputs())
  jaxpr = jax.make_jaxpr(net.apply)(params, make_inputs())
  outside = [e for e in jaxpr.eqns if 'dot_general' in str(e.primitive)]
  # Input rows; their queries, keys and values; their part of the gates.
  assert [e.outvars[0].aval.shape[0] for e in outside] == [T * B] * 3


def test_works_outside_a_transform():
  def core(x, state):
    return x + state, state + 1.0

  outputs, state = rmc_jax.unroll(
    core, jnp.arange(4.0), jnp.array(0.0), lengths=jnp.array(3)
  )
  np.testing.assert_array_equal(outputs, [0.0, 2.0, 4.0, 0.0])
  assert state == 3.0


@pytest.mark.parametrize(
  'kwargs, error, message',
  [
    ({'reset': jnp.zeros((B, T), bool)}, ValueError, r'\(3, 6\).*\(6, 3\)'),
    ({'reset': jnp.zeros((T, B))}, TypeError, r'reset.astype\(bool\)'),
    ({'lengths': jnp.zeros(T, int)}, ValueError, r'lengths.*\(6,\).*\(3,\)'),
    ({'lengths': jnp.zeros(B)}, TypeError, 'lengths is float32'),
    ({'remat': 'everything'}, ValueError, "remat must .*Got: 'everything'"),
    ({'inputs': jnp.zeros((T, 2, 5))}, ValueError, r'\(6, 2\), but.*\(3,\)'),
    ({'inputs': ()}, ValueError, 'time axis'),
    ({'reset': [True] * T}, ValueError, r'\(6,\), expected \(6, 3\)'),
    ({'remat': 'save_only_these_names'}, ValueError, "Got: 'save_only"),
    (
      {'inputs': jnp.zeros((T, 5)), 'batch_size': None, 'time_major': False},
      ValueError,
      'batch axis before the time axis',
    ),
  ],
)
def test_refuses_mismatched_arguments(kwargs, error, message):
  with pytest.raises(error, match=message):
    run('relational', rmc_jax.unroll, **kwargs)


def test_reset_needs_an_initial_state():
  with pytest.raises(ValueError, match='reset needs.*Got: function'):
    rmc_jax.unroll(
      lambda x, state: (x, state),
      jnp.zeros(T),
      jnp.array(0.0),
      reset=jnp.zeros(T, bool),
    )


@pytest.mark.parametrize('option', ['treat_input_as_matrix', 'return_trace'])
def test_refuses_options_of_memory_cores(option):
  with pytest.raises(ValueError, match=f'{option}=True.*Got: LSTM'):
    run('lstm', rmc_jax.unroll, **{option: True})
