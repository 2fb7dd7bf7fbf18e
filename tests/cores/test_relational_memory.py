"""Tests rmc_jax/cores/relational_memory.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import RelationalMemory
from tests.reference import relational_memory as reference

# All sizes differ, so that swapped axes fail.
B, N, H, V, K, FEATURES, ROWS = 2, 3, 5, 7, 11, 13, 4
D = H * V

# float32 rounding of one step on values of order 1; the measured difference
# from float64 is 1e-6.
ATOL = 5e-6


def make(batch_size=B, rows=None, dtype=jnp.float32, **kwargs):
  """Returns a transformed core, random parameters and its arguments."""
  kwargs = {
    'mem_slots': N,
    'head_size': V,
    'num_heads': H,
    'key_size': K,
    **kwargs,
  }

  def step(inputs, state):
    core = RelationalMemory(**kwargs)
    return core(inputs, state, treat_input_as_matrix=rows is not None)

  rng = np.random.default_rng(0)
  lead = () if batch_size is None else (batch_size,)
  middle = () if rows is None else (rows,)
  inputs = jnp.asarray(rng.normal(size=(*lead, *middle, FEATURES)), dtype)
  state = jnp.asarray(rng.normal(size=(*lead, N, D)), dtype)
  net = hk.without_apply_rng(hk.transform(step))
  shapes = jax.eval_shape(net.init, jax.random.key(1), inputs, state)
  # Initial biases and offsets are zero, which would hide missing ones.
  params = jax.tree.map(
    lambda s: jnp.asarray(0.3 * rng.normal(size=s.shape), s.dtype), shapes
  )
  return net._replace(apply=jax.jit(net.apply)), params, inputs, state


@pytest.mark.parametrize('query_scale', ['key', 'qkv'])
@pytest.mark.parametrize('gate_style', ['unit', 'memory', None])
@pytest.mark.parametrize('num_blocks', [1, 2])
def test_step_equals_the_row_by_row_reference(
  num_blocks, gate_style, query_scale
):
  net, params, inputs, memory = make(
    num_blocks=num_blocks,
    gate_style=gate_style,
    query_scale=query_scale,
    forget_bias=0.3,
    input_bias=-0.7,
    attention_mlp_layers=3,
  )
  output, next_memory = net.apply(params, inputs, memory)
  expected, _, _ = reference.relational_memory_step(
    jax.tree.map(np.float64, params),
    np.float64(inputs)[:, None],
    np.float64(memory),
    num_heads=H,
    key_size=K,
    num_blocks=num_blocks,
    gate_style=gate_style,
    forget_bias=0.3,
    input_bias=-0.7,
    query_scale=query_scale,
  )
  np.testing.assert_allclose(next_memory, expected, atol=ATOL)
  # XLA may compute the two in different fusions.
  np.testing.assert_allclose(output, next_memory.reshape(B, N * D), atol=1e-6)


def test_matrix_input_attends_to_every_row():
  net, params, inputs, memory = make(rows=ROWS, num_blocks=2)
  _, next_memory = net.apply(params, inputs, memory)
  expected, _, _ = reference.relational_memory_step(
    jax.tree.map(np.float64, params),
    np.float64(inputs),
    np.float64(memory),
    num_heads=H,
    key_size=K,
    num_blocks=2,
    gate_style='unit',
  )
  np.testing.assert_allclose(next_memory, expected, atol=ATOL)


def test_trailing_axes_are_flattened_as_in_the_original():
  net, params, inputs, memory = make()
  folded = inputs.reshape(B, FEATURES, 1)
  np.testing.assert_array_equal(
    net.apply(params, folded, memory)[0], net.apply(params, inputs, memory)[0]
  )
  net, params, inputs, memory = make(rows=ROWS)
  folded = inputs.reshape(B, ROWS, 1, FEATURES)
  np.testing.assert_array_equal(
    net.apply(params, folded, memory)[0], net.apply(params, inputs, memory)[0]
  )


def test_initial_state_is_a_padded_or_cut_identity():
  def initial_state(mem_slots, head_size, batch_size):
    return hk.testing.transform_and_run(
      lambda: RelationalMemory(mem_slots, head_size).initial_state(batch_size)
    )()

  wide = initial_state(3, 5, 2)
  np.testing.assert_array_equal(wide, np.tile(np.eye(3, 5), (2, 1, 1)))
  np.testing.assert_array_equal(initial_state(3, 5, None), np.eye(3, 5))
  np.testing.assert_array_equal(initial_state(5, 3, None), np.eye(5, 3))


def test_unbatched_equals_one_example_of_a_batch():
  net, params, inputs, memory = make()
  output, next_memory = net.apply(params, inputs, memory)
  single_output, single_memory = net.apply(params, inputs[1], memory[1])
  assert single_output.shape == (N * D,)
  # Products of one row and of a batch may round differently.
  np.testing.assert_allclose(single_output, output[1], atol=ATOL)
  np.testing.assert_allclose(single_memory, next_memory[1], atol=ATOL)


@pytest.mark.parametrize(
  'kwargs, shapes',
  [
    ({}, {}),
    (
      {'gate_style': 'memory'},
      {
        'input_gates': {'w': (D, 2), 'b': (2,)},
        'memory_gates': {'w': (D, 2), 'b': (2,)},
      },
    ),
  ],
)
def test_parameter_paths_and_shapes(kwargs, shapes):
  _, params, _, _ = make(num_blocks=2, attention_mlp_layers=2, **kwargs)
  width = H * (2 * K + V)

  def linear(fan_in, fan_out):
    return {'w': (fan_in, fan_out), 'b': (fan_out,)}

  def norm(size):
    return {'scale': (size,), 'offset': (size,)}

  expected = {'input': linear(FEATURES, D)}
  for block in ('attention_0', 'attention_1'):
    expected |= {
      f'{block}/qkv': linear(D, width),
      f'{block}/qkv_norm': norm(width),
      f'{block}/attention_norm': norm(D),
      f'{block}/mlp_norm': norm(D),
    }
  expected |= {
    'mlp/linear_0': linear(D, D),
    'mlp/linear_1': linear(D, D),
    'input_gates': linear(D, 2 * D),
    'memory_gates': linear(D, 2 * D),
    **shapes,
  }
  expected = {f'relational_memory/{k}': v for k, v in expected.items()}
  assert jax.tree.map(jnp.shape, params) == expected


@pytest.mark.parametrize(
  'mem_slots, head_size, gate_style, count',
  [
    (8, 32, 'unit', 605_184),
    (8, 32, 'memory', 343_044),
    (1, 256, 'unit', 37_871_616),
    (16, 16, 'unit', 155_136),
  ],
)
def test_parameter_counts_at_paper_sizes(
  mem_slots, head_size, gate_style, count
):
  def step(inputs):
    core = RelationalMemory(mem_slots, head_size, 8, gate_style=gate_style)
    return core(inputs, core.initial_state(1))

  params = jax.eval_shape(
    hk.transform(step).init, jax.random.key(0), jnp.zeros((1, 40))
  )
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count


@pytest.mark.parametrize('gate_style', ['unit', 'memory'])
def test_trace_equals_the_reference(gate_style):
  net, params, inputs, memory = make(
    rows=ROWS, num_blocks=2, gate_style=gate_style
  )

  def traced(inputs, state):
    core = RelationalMemory(
      N, V, H, num_blocks=2, gate_style=gate_style, key_size=K
    )
    return core.trace_step(core.project(inputs, True), state)

  traced = jax.jit(hk.without_apply_rng(hk.transform(traced)).apply)
  (output, trace), next_memory = traced(params, inputs, memory)
  expected_output, expected_memory = net.apply(params, inputs, memory)
  # The same operations, possibly in other fusions.
  np.testing.assert_allclose(output, expected_output, atol=ATOL)
  np.testing.assert_allclose(next_memory, expected_memory, atol=ATOL)
  _, attention, gates = reference.relational_memory_step(
    jax.tree.map(np.float64, params),
    np.float64(inputs),
    np.float64(memory),
    num_heads=H,
    key_size=K,
    num_blocks=2,
    gate_style=gate_style,
  )
  assert trace.attention.shape == (B, 2, H, N, N + ROWS)
  np.testing.assert_allclose(trace.attention, attention, atol=ATOL)
  assert set(trace.gates) == set(gates)
  for name, gate in gates.items():
    np.testing.assert_allclose(trace.gates[name], gate, atol=ATOL)


@pytest.mark.parametrize(
  'kwargs, error, message',
  [
    ({'mem_slots': 0}, ValueError, 'mem_slots must be at least 1. Got: 0'),
    ({'head_size': -2}, ValueError, 'head_size must be at least 1. Got: -2'),
    ({'num_heads': 0}, ValueError, 'num_heads must be at least 1. Got: 0'),
    ({'num_blocks': 0}, ValueError, 'num_blocks must be at least 1. Got: 0'),
    (
      {'attention_mlp_layers': 0},
      ValueError,
      'attention_mlp_layers must be at least 1. Got: 0',
    ),
    ({'key_size': 0}, ValueError, 'key_size must be at least 1. Got: 0'),
    ({'head_size': 2.5}, TypeError, 'head_size must be an integer. Got: 2.5'),
    ({'gate_style': 'row'}, ValueError, "gate_style must be one of .*'row'"),
    ({'query_scale': 'k'}, ValueError, "query_scale must be one of .*'k'"),
  ],
)
def test_refuses_bad_arguments(kwargs, error, message):
  with pytest.raises(error, match=message):
    make(**kwargs)


def test_refuses_mismatched_shapes():
  net, params, inputs, memory = make()
  with pytest.raises(ValueError, match=r'\(2, 5, 35\), expected \(2, 3, 35\)'):
    net.apply(params, inputs, jnp.zeros((B, 5, D)))
  with pytest.raises(ValueError, match=r'\(3, 13\), expected \[2, features'):
    net.apply(params, jnp.zeros((3, FEATURES)), memory)
  with pytest.raises(ValueError, match=r'\(2,\), expected \[2, features'):
    net.apply(params, jnp.zeros(B), memory)
  with pytest.raises(ValueError, match='at least one feature'):
    net.apply(params, jnp.zeros((B, 0)), memory)
  with pytest.raises(TypeError, match='int32.*one-hot'):
    net.apply(params, jnp.zeros((B, FEATURES), jnp.int32), memory)
  net, params, inputs, memory = make(rows=ROWS)
  with pytest.raises(ValueError, match=r'\[2, rows, features\]'):
    net.apply(params, inputs[:, 0], memory)


def test_gradients_reach_every_parameter():
  net, params, inputs, memory = make(num_blocks=2)

  def loss(params):
    return jnp.sum(net.apply(params, inputs, memory)[0] ** 2)

  gradients = jax.grad(loss)(params)
  for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
    assert np.abs(leaf).max() > 0, path
