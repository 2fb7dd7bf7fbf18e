"""Tests rmc_jax/cores/paper_relational_memory.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import PaperRelationalMemory
from rmc_jax.cores import PaperMemoryState
from tests.reference import relational_memory as reference

B, N, H, V, K, FEATURES, ROWS = 2, 3, 5, 7, 11, 13, 4
D = H * V

# float32 rounding of one step on values of order 1, compared with float64.
ATOL = 5e-6


def make(rows=None, **kwargs):
  kwargs = {
    'mem_slots': N,
    'head_size': V,
    'num_heads': H,
    'key_size': K,
    **kwargs,
  }

  def step(inputs, state):
    core = PaperRelationalMemory(**kwargs)
    return core(inputs, state, treat_input_as_matrix=rows is not None)

  rng = np.random.default_rng(0)

  def normal(*shape):
    return jnp.asarray(rng.normal(size=shape), jnp.float32)

  inputs = normal(B, *(() if rows is None else (rows,)), FEATURES)
  state = PaperMemoryState(normal(B, N, D), normal(B, N, D))
  net = hk.without_apply_rng(hk.transform(step))
  shapes = jax.eval_shape(net.init, jax.random.key(1), inputs, state)
  params = jax.tree.map(lambda s: 0.3 * normal(*s.shape), shapes)
  return net._replace(apply=jax.jit(net.apply)), params, inputs, state


@pytest.mark.parametrize('gate_style', ['unit', 'memory'])
@pytest.mark.parametrize('rows', [None, ROWS])
def test_step_equals_the_row_by_row_reference(rows, gate_style):
  net, params, inputs, state = make(
    rows=rows,
    gate_style=gate_style,
    forget_bias=0.3,
    attention_mlp_layers=3,
  )
  output, next_state = net.apply(params, inputs, state)
  memory, hidden, _, _ = reference.paper_relational_memory_step(
    jax.tree.map(np.float64, params),
    np.float64(inputs if rows else inputs[:, None]),
    np.float64(state.memory),
    np.float64(state.hidden),
    num_heads=H,
    key_size=K,
    forget_bias=0.3,
  )
  np.testing.assert_allclose(next_state.memory, memory, atol=ATOL)
  np.testing.assert_allclose(next_state.hidden, hidden, atol=ATOL)
  # XLA may compute the two in different fusions.
  np.testing.assert_allclose(
    output, next_state.hidden.reshape(B, N * D), atol=1e-6
  )


def test_trace_equals_the_reference():
  _, params, inputs, state = make(rows=ROWS)

  def traced(inputs, state):
    core = PaperRelationalMemory(N, V, H, key_size=K)
    return core.trace_step(core.project(inputs, True), state)

  traced = jax.jit(hk.without_apply_rng(hk.transform(traced)).apply)
  (_, trace), _ = traced(params, inputs, state)
  _, _, attention, gates = reference.paper_relational_memory_step(
    jax.tree.map(np.float64, params),
    np.float64(inputs),
    np.float64(state.memory),
    np.float64(state.hidden),
    num_heads=H,
    key_size=K,
  )
  assert trace.attention.shape == (B, 1, H, N, N + ROWS)
  np.testing.assert_allclose(trace.attention, attention, atol=ATOL)
  assert set(trace.gates) == set(gates)
  for name, gate in gates.items():
    np.testing.assert_allclose(trace.gates[name], gate, atol=ATOL)


def test_equation_1_has_no_biases_and_each_gate_has_one():
  _, params, _, _ = make()
  layers = {path.split('/', 1)[1]: set(leaf) for path, leaf in params.items()}
  assert layers == {
    'input': {'w', 'b'},
    'queries': {'w'},
    'keys_values': {'w'},
    'attention_norm': {'scale', 'offset'},
    'mlp/linear_0': {'w', 'b'},
    'mlp/linear_1': {'w', 'b'},
    'mlp_norm': {'scale', 'offset'},
    'input_gates': {'w', 'b'},
    'hidden_gates': {'w'},
  }


def test_parameters_do_not_grow_with_the_number_of_slots():
  # End of section 3.3: "we can modify the number of memories without affecting
  # the number of parameters".
  def count(mem_slots):
    def step(inputs):
      core = PaperRelationalMemory(mem_slots, V, H)
      return core(inputs, core.initial_state(B))

    params = jax.eval_shape(
      hk.transform(step).init, jax.random.key(0), jnp.zeros((B, FEATURES))
    )
    return sum(leaf.size for leaf in jax.tree.leaves(params))

  assert count(2) == count(9)


def test_initial_state():
  state = hk.testing.transform_and_run(
    lambda: PaperRelationalMemory(3, 5).initial_state(2)
  )()
  np.testing.assert_array_equal(state.memory, np.tile(np.eye(3, 5), (2, 1, 1)))
  np.testing.assert_array_equal(state.hidden, np.zeros((2, 3, 5)))


@pytest.mark.parametrize(
  'kwargs, message',
  [
    ({'mem_slots': 0}, 'mem_slots must be at least 1. Got: 0'),
    (
      {'attention_mlp_layers': 0},
      'attention_mlp_layers must be at least 1. Got: 0',
    ),
    ({'gate_style': None}, 'gate_style must be one of .* Got: None'),
  ],
)
def test_refuses_bad_arguments(kwargs, message):
  with pytest.raises(ValueError, match=message):
    make(**kwargs)


def test_refuses_mismatched_states():
  net, params, inputs, state = make()
  expected = r'expected PaperMemoryState\(.*, hidden=\(2, 3, 35\)\)'
  for shape, found in ((B, 4, D), r'\(2, 4, 35\)'), ((N, D), r'\(3, 35\)'):
    with pytest.raises(ValueError, match=rf'hidden={found}\), {expected}'):
      net.apply(params, inputs, state._replace(hidden=jnp.zeros(shape)))
