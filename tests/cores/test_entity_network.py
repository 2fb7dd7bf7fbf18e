"""Tests rmc_jax/cores/entity_network.py; more are in test_every_core.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import jax.test_util
import jmp
import numpy as np
import pytest

import rmc_jax
from rmc_jax.cores.entity_network import EntityNetwork
from rmc_jax.cores.entity_network import ProjectedInputs
from tests.reference import entity_network as reference

# All sizes differ.
T, B, N, D, FEATURES = 4, 2, 3, 5, 7

# float32 rounding of sums of order 1 over a few layers and up to T steps; the
# measured difference is 1.3e-7.
ATOL = 2e-6

with_or_without_bias = pytest.mark.parametrize('gate_bias', [False, True])


def make(how=None, **kwargs):
  """Returns a transformed function of a core, parameters, inputs and a state.

  Args:
    how: called with (core, inputs, state); a step if None, and else on T steps.
    **kwargs: for the core.
  """

  def run(inputs, state):
    core = EntityNetwork(N, D, **kwargs)
    return core(inputs, state) if how is None else how(core, inputs, state)

  rng = np.random.default_rng(0)

  def normal(*shape, scale=1.0):
    return jnp.asarray(scale * rng.normal(size=shape), jnp.float32)

  inputs = normal(*([] if how is None else [T]), B, FEATURES)
  state = normal(B, N, D)
  net = hk.without_apply_rng(hk.transform(run))
  shapes = jax.eval_shape(net.init, jax.random.key(0), inputs, state)
  # Initial biases are 0 and slopes 1, which would hide missing ones.
  params = jax.tree.map(lambda s: normal(*s.shape, scale=0.3), shapes)
  return net._replace(apply=jax.jit(net.apply)), params, inputs, state


def assert_close(actual, expected, atol=ATOL):
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  for a, e in zip(
    jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    np.testing.assert_allclose(a, e, atol=atol * max(1.0, np.abs(e).max()))


@with_or_without_bias
def test_step_equals_the_slot_by_slot_reference(gate_bias):
  net, params, inputs, slots = make(gate_bias=gate_bias)
  output, next_slots = net.apply(params, inputs, slots)
  expected = reference.entity_network_step(
    jax.tree.map(np.float64, params), np.float64(inputs), np.float64(slots)
  )
  assert_close(next_slots, expected)
  np.testing.assert_array_equal(output, next_slots.reshape(B, N * D))


def test_step_equals_hand_calculation():
  eye, zero = np.eye(2), np.zeros((2, 2))
  params = {
    'input': {'w': eye, 'b': np.zeros(2)},
    'keys': {'embeddings': np.array([[3.0, 0.0], [0.0, np.log(3.0)]])},
    'slot_candidate': {'w': zero, 'b': np.array([0.0, -6.0])},
    'key_candidate': {'w': zero},
    'input_candidate': {'w': eye},
    'prelu': {'slope': np.array([9.0, 0.5])},
  }
  params = jax.tree.map(
    jnp.float32, {f'entity_network/{k}': v for k, v in params.items()}
  )
  net = hk.without_apply_rng(
    hk.transform(lambda x, state: EntityNetwork(2, 2)(x, state))
  )
  output, slots = net.apply(
    params, jnp.array([0.0, 1.0]), jnp.array([[1.0, 0.0], [1.0, 0.0]])
  )
  # s = (0, 1); no slot matches it, of the keys the second: gates sigmoid(0) =
  # 1/2 and sigmoid(log 3) = 3/4. Candidates phi((0, 1 - 6)) = (0, -5/2).
  # (1, 0) moves to (1, -5/4) and (1, -15/8), of length sqrt(41)/4 and 17/8.
  expected = [[4 / 41**0.5, -5 / 41**0.5], [8 / 17, -15 / 17]]
  np.testing.assert_allclose(slots, expected, atol=1e-6)
  np.testing.assert_allclose(output, np.ravel(expected), atol=1e-6)


def test_matching_slots_open_their_gates():
  net, params, inputs, slots = make()
  layer = params['entity_network/input']
  encoded = inputs @ layer['w'] + jnp.tile(layer['b'], (B, 1))  # s
  # Two slots have a large s . h of either sign, which decides their gates.
  slots = slots.at[:, 0].set(200.0 * encoded).at[:, 1].set(-200.0 * encoded)
  _, next_slots = net.apply(params, inputs, slots)
  moved = np.abs(next_slots - direction(slots)).max(axis=(0, 2))
  assert moved[0] > 1e-4
  assert moved[1] < 1e-6


def direction(slots):
  return slots / np.linalg.norm(slots, axis=-1, keepdims=True)


def test_slots_have_length_one():
  _, next_slots = make()[0].apply(*make()[1:])
  np.testing.assert_allclose(
    np.linalg.norm(next_slots, axis=-1), 1.0, atol=1e-6
  )


def test_closed_gates_keep_the_direction_of_slots():
  net, params, inputs, slots = make(gate_bias=True)
  params['entity_network/gate_bias']['b'] = jnp.array([-200.0, 0.0, -200.0])
  _, next_slots = net.apply(params, inputs, slots)
  kept = np.abs(next_slots - direction(slots)).max(axis=(0, 2)) < 1e-6
  np.testing.assert_array_equal(kept, [True, False, True])


@pytest.mark.parametrize('length', [0.0, 1e-25, 1e-15, 1e-11, 1e-9, 1e-5])
def test_slots_of_length_zero_have_finite_gradients(length):
  net, params, inputs, slots = make(gate_bias=True)
  params['entity_network/gate_bias']['b'] = jnp.full(N, -200.0)
  slots = length * direction(slots)

  def outputs(params, slots):
    output = net.apply(params, inputs, slots)[0]
    return jnp.vdot(output, jnp.arange(1.0, 1.0 + B * N * D)), output

  gradients, output = jax.grad(outputs, argnums=(0, 1), has_aux=True)(
    params, slots
  )
  for leaf in jax.tree.leaves(gradients):
    assert np.isfinite(leaf).all()
  expected = slots if length < 1e-10 else direction(np.float64(slots))
  np.testing.assert_allclose(output, expected.reshape(B, N * D), atol=1e-6)


@pytest.mark.parametrize('batch_size', [B, None])
def test_slots_start_as_their_keys_with_gradients(batch_size):
  def start():
    return EntityNetwork(N, D).initial_state(batch_size)

  net = hk.without_apply_rng(hk.transform(start))
  params = net.init(jax.random.key(0))
  assert list(params) == ['entity_network/keys']
  state = net.apply(params)
  keys = params['entity_network/keys']['embeddings']
  lead = () if batch_size is None else (batch_size,)
  np.testing.assert_array_equal(state, np.broadcast_to(keys, (*lead, N, D)))
  gradient = jax.grad(lambda params: net.apply(params).sum())(params)
  np.testing.assert_array_equal(
    gradient['entity_network/keys']['embeddings'], batch_size or 1
  )


def test_step_uses_neither_keys_nor_encoder():
  projected = ProjectedInputs(
    jnp.ones((B, D)), jnp.ones((B, N)), jnp.ones((B, N, D))
  )
  step = hk.transform(
    lambda projected, state: EntityNetwork(N, D).step(projected, state)
  )
  params = step.init(jax.random.key(0), projected, jnp.ones((B, N, D)))
  # `projected` contains s . w_j, V w_j and W s.
  assert {path.split('/')[1] for path in params} == {'slot_candidate', 'prelu'}

  def project(core, inputs, state):
    del state
    return core.project(inputs)

  net, params, inputs, slots = make(project)
  projected = net.apply(params, inputs, slots)
  assert jax.tree.map(jnp.shape, projected) == ProjectedInputs(
    (T, B, D), (T, B, N), (T, B, N, D)
  )


RESET = np.zeros((T, B), bool)
RESET[2, 1] = RESET[0, 0] = True
LENGTHS = np.array([T, 3])


@with_or_without_bias
def test_unroll_equals_a_loop_over_the_reference(gate_bias):
  def unroll(core, inputs, state):
    return rmc_jax.unroll(
      core,
      inputs,
      state,
      reset=jnp.asarray(RESET),
      lengths=jnp.asarray(LENGTHS),
    )

  net, params, inputs, state = make(unroll, gate_bias=gate_bias)
  exact = jax.tree.map(np.float64, params)
  keys = exact['entity_network/keys']['embeddings']
  slots, expected_outputs = np.float64(state), []
  for t, x in enumerate(np.float64(inputs)):
    slots = np.where(RESET[t, :, None, None], keys, slots)
    active = (t < LENGTHS)[:, None, None]
    next_slots = reference.entity_network_step(exact, x, slots)
    outputs = np.where(active, next_slots, 0.0)
    expected_outputs.append(outputs.reshape(B, N * D))
    slots = np.where(active, next_slots, slots)
  assert_close(
    net.apply(params, inputs, state), (np.stack(expected_outputs), slots)
  )


@with_or_without_bias
def test_gradients_equal_finite_differences(gate_bias):
  def unroll(core, inputs, state):
    return rmc_jax.unroll(core, inputs, state + core.initial_state(B))

  net, *args = make(unroll, gate_bias=gate_bias)
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


@with_or_without_bias
def test_parameter_paths_and_shapes(gate_bias):
  _, params, _, _ = make(gate_bias=gate_bias)
  expected = {
    'input': {'w': (FEATURES, D), 'b': (D,)},
    'keys': {'embeddings': (N, D)},
    'slot_candidate': {'w': (D, D), 'b': (D,)},
    'key_candidate': {'w': (D, D)},
    'input_candidate': {'w': (D, D)},
    'prelu': {'slope': (D,)},
  }
  if gate_bias:
    expected['gate_bias'] = {'b': (N,)}
  assert jax.tree.map(jnp.shape, params) == {
    f'entity_network/{path}': shapes for path, shapes in expected.items()
  }


def test_initial_parameters():
  features, slots, size = 300, 40, 200

  def step(inputs):
    core = EntityNetwork(slots, size, gate_bias=True)
    return core(inputs, core.initial_state(1))

  init = jax.jit(hk.transform(step).init)
  params = init(jax.random.key(0), jnp.ones((1, features)))
  np.testing.assert_array_equal(params['entity_network/prelu']['slope'], 1.0)
  for path in ('input', 'slot_candidate', 'gate_bias'):
    np.testing.assert_array_equal(params[f'entity_network/{path}']['b'], 0.0)
  matrices = {
    path: matrix
    for path, module in params.items()
    for matrix in module.values()
    if matrix.ndim == 2
  }
  assert len(matrices) == 5
  for path, matrix in matrices.items():
    fan_in = size if path.endswith('keys') else len(matrix)
    scaled = np.asarray(matrix) * np.sqrt(fan_in)
    # A normal truncated at two standard deviations has spread 0.8796.
    assert np.abs(scaled).max() <= 2.0 + 1e-5, path
    # 8,000 draws or more: ten standard errors.
    assert abs(scaled.std() - 0.8796) < 10 * 0.88 / np.sqrt(scaled.size), path


def test_policy_casts_the_output_but_not_the_state():
  policy = jmp.get_policy('params=float32,compute=bfloat16,output=bfloat16')
  net, params, inputs, slots = make(gate_bias=True)
  params['entity_network/gate_bias']['b'] = jnp.full(N, -200.0)
  with hk.mixed_precision.push_policy(EntityNetwork, policy):
    output, next_slots = make(gate_bias=True)[0].apply(params, inputs, slots)
  # bfloat16 rounds by up to 4e-3.
  np.testing.assert_allclose(next_slots, direction(slots), atol=1e-6)
  assert output.dtype == jnp.bfloat16


@pytest.mark.parametrize(
  'args, error, message',
  [
    ((0, 5), ValueError, 'num_slots must be at least 1. Got: 0'),
    ((3, -1), ValueError, 'slot_size must be at least 1. Got: -1'),
    ((3, 5.0), TypeError, 'slot_size must be an integer. Got: 5.0'),
  ],
)
def test_refuses_bad_arguments(args, error, message):
  with pytest.raises(error, match=message):
    hk.testing.transform_and_run(lambda: EntityNetwork(*args) and None)()
