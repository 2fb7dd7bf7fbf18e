"""Tests what both memory cores must do: precision, transforms, wrappers."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np
import pytest

import rmc_jax
from rmc_jax.models import SequenceClassifier

B, T, N, H, V, FEATURES = 2, 6, 3, 5, 7, 13
D = H * V

# Products of one row, of a batch and of a sequence may round differently.
ATOL = 5e-6
POLICY = jmp.get_policy('params=float32,compute=bfloat16,output=float32')
CORES = [rmc_jax.RelationalMemory, rmc_jax.PaperRelationalMemory]

both_cores = pytest.mark.parametrize('cls', CORES)


def make(cls, batch_size=B):
  """A transformed step, filled parameters, inputs and a state."""
  rng = np.random.default_rng(0)

  def normal(shape, scale=1.0):
    return jnp.asarray(scale * rng.normal(size=shape), jnp.float32)

  net = hk.without_apply_rng(
      hk.transform(lambda x, state: cls(N, V, H)(x, state))
  )
  state = hk.testing.transform_and_run(
      lambda: cls(N, V, H).initial_state(batch_size)
  )()
  state = jax.tree.map(lambda s: normal(s.shape), state)
  lead = () if batch_size is None else (batch_size,)
  inputs = normal((*lead, FEATURES))
  shapes = jax.eval_shape(net.init, jax.random.key(0), inputs, state)
  params = jax.tree.map(lambda s: normal(s.shape, 0.3), shapes)
  return net, params, inputs, state


def product_dtypes(f, *args):
  """(factors' dtypes, result's dtype) of every matrix product in `f`."""
  found = set()

  def visit(jaxpr):
    for eqn in jaxpr.eqns:
      if eqn.primitive.name == 'dot_general':
        factors = {str(v.aval.dtype) for v in eqn.invars}
        found.add((tuple(sorted(factors)), str(eqn.outvars[0].aval.dtype)))
      for value in eqn.params.values():
        for leaf in jax.tree.leaves(
            value, is_leaf=lambda x: hasattr(x, 'jaxpr') or hasattr(x, 'eqns')
        ):
          inner = getattr(leaf, 'jaxpr', leaf)
          if hasattr(inner, 'eqns'):
            visit(inner)

  # A new function: JAX remembers the trace of an old one, policy and all.
  visit(jax.make_jaxpr(lambda *args: f(*args))(*args).jaxpr)
  return found


def dtypes_of(tree):
  return {str(leaf.dtype) for leaf in jax.tree.leaves(tree)}


@both_cores
def test_policy_narrows_the_factors_of_products_and_no_sum(cls):
  net, params, inputs, state = make(cls)
  assert product_dtypes(net.apply, params, inputs, state) == {
      (('float32',), 'float32')
  }
  exact, _ = net.apply(params, inputs, state)
  with hk.mixed_precision.push_policy(cls, POLICY):
    fresh = net.init(jax.random.key(0), inputs, state)
    assert dtypes_of(fresh) == {'float32'}
    assert product_dtypes(net.apply, params, inputs, state) == {
        (('bfloat16',), 'float32')
    }
    output, next_state = net.apply(params, inputs, state)
  assert output.dtype == jnp.float32
  assert dtypes_of(next_state) == {'float32'}
  # Factors keep 8 bits, 0.4 %, of terms of order 1 a few layers deep.
  np.testing.assert_allclose(output, exact, atol=0.15)
  assert np.abs(output - exact).max() > 1e-4


def test_policy_leaves_the_memory_unrounded():
  # An open forget gate and a shut input gate hand the memory on as it is.
  def step(x, state):
    core = rmc_jax.RelationalMemory(
        N, V, H, gate_style='memory', forget_bias=50.0, input_bias=-50.0
    )
    return core(x, state)

  net = hk.without_apply_rng(hk.transform(step))
  _, _, inputs, memory = make(rmc_jax.RelationalMemory)
  with hk.mixed_precision.push_policy(rmc_jax.RelationalMemory, POLICY):
    params = net.init(jax.random.key(0), inputs, memory)
    _, next_memory = net.apply(params, inputs, memory)
  np.testing.assert_array_equal(next_memory, memory)
  assert not np.array_equal(memory, memory.astype(jnp.bfloat16))


@both_cores
def test_policy_of_a_model_that_is_given_the_core_narrows_all_products(cls):
  net = hk.without_apply_rng(
      hk.transform(lambda x: SequenceClassifier(cls(N, V, H), 4, (11,))(x))
  )
  inputs = jnp.ones((B, T, FEATURES))
  with hk.mixed_precision.push_policy(SequenceClassifier, POLICY):
    params = net.init(jax.random.key(0), inputs)
    dtypes = product_dtypes(net.apply, params, inputs)
  assert dtypes_of(params) == {'float32'}
  # The read-out is Haiku's own, whose sums are as narrow as its factors.
  assert dtypes == {
      (('bfloat16',), 'float32'),
      (('bfloat16',), 'bfloat16'),
  }


@both_cores
def test_a_state_narrowed_on_its_way_is_widened_before_the_loop(cls):
  class Agent(hk.Module):

    def __call__(self, inputs, state):
      return rmc_jax.unroll(cls(N, V, H), inputs, state)

  net = hk.without_apply_rng(hk.transform(lambda *args: Agent()(*args)))
  _, _, _, state = make(cls)
  inputs = jnp.ones((T, B, FEATURES))
  with hk.mixed_precision.push_policy(Agent, POLICY):
    params = net.init(jax.random.key(0), inputs, state)
    _, carried = net.apply(params, inputs, state)
    jaxpr = str(jax.make_jaxpr(net.apply)(params, inputs, carried))
  # The loop's carry, which is what would lose digits at every step.
  assert f'f32[{B},{N},{D}]' in jaxpr
  scan = next(line for line in jaxpr.splitlines() if ' scan[' in line)
  assert f'bf16[{B},{N},{D}]' not in scan


@both_cores
def test_narrow_inputs_and_states_without_a_policy(cls):
  net, params, inputs, state = make(cls)
  _, exact = net.apply(params, inputs, state)
  narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), (inputs, state))
  _, wide_state = net.apply(params, narrow[0], state)
  assert dtypes_of(wide_state) == {'float32'}
  _, narrow_state = net.apply(params, *narrow)
  for actual, expected in zip(
      jax.tree.leaves(narrow_state), jax.tree.leaves(exact), strict=True
  ):
    assert actual.dtype == jnp.bfloat16
    # Inputs and results keep 8 bits; what is between is in float32.
    np.testing.assert_allclose(
        np.float32(actual), expected, atol=0.1
    )


@both_cores
def test_float64_is_float64_throughout(cls):
  net, params, inputs, state = make(cls)
  single, _ = net.apply(params, inputs, state)
  with jax.enable_x64(True):
    double = jax.tree.map(
        lambda x: jnp.asarray(np.float64(x)), (params, inputs, state)
    )
    output, next_state = net.apply(*double)
    assert product_dtypes(net.apply, *double) == {(('float64',), 'float64')}
  assert output.dtype == np.float64
  assert dtypes_of(next_state) == {'float64'}
  np.testing.assert_allclose(output, single, atol=ATOL)


@both_cores
def test_initial_parameters_are_those_of_sonnet(cls):
  # Truncated normal at two standard deviations: spread 0.8796 of its scale.
  features = 400

  def step(x):
    core = cls(2, 20, 20)
    return core(x, core.initial_state(1))

  init = jax.jit(hk.transform(step).init)
  params = init(jax.random.key(0), jnp.ones((1, features)))
  for path, module in params.items():
    if 'norm' in path:
      np.testing.assert_array_equal(module['scale'], 1.0)
      np.testing.assert_array_equal(module['offset'], 0.0)
      continue
    scaled = np.asarray(module['w']) * np.sqrt(module['w'].shape[0])
    assert np.abs(scaled).max() <= 2.0 + 1e-5, path
    # 160,000 draws or more: ten standard errors.
    assert abs(scaled.std() - 0.8796) < 10 * 0.88 / np.sqrt(scaled.size), path
    if 'b' in module:
      np.testing.assert_array_equal(module['b'], 0.0)


@both_cores
def test_paths_have_no_tilde_nested_and_side_by_side(cls):
  class Agent(hk.Module):

    def __call__(self, x):
      for core in (cls(N, V, H), cls(N, V, H)):
        x, _ = core(x, core.initial_state(B))
      return x

  net = hk.transform(lambda x: Agent()(x))
  params = jax.eval_shape(net.init, jax.random.key(0), jnp.ones((B, FEATURES)))
  name = {
      rmc_jax.RelationalMemory: 'relational_memory',
      rmc_jax.PaperRelationalMemory: 'paper_relational_memory',
  }[cls]
  assert {path.split('/')[1] for path in params} == {name, f'{name}_1'}
  assert not [path for path in params if '~' in path]
  assert params[f'agent/{name}/input']['w'].shape == (FEATURES, D)
  assert params[f'agent/{name}_1/input']['w'].shape == (N * D, D)


@both_cores
def test_works_inside_reset_core_and_deep_rnn(cls):
  def wrapped(inputs, should_reset):
    core = hk.ResetCore(hk.DeepRNN([cls(N, V, H), hk.Linear(6), jax.nn.relu]))
    state = jax.tree.map(jnp.ones_like, core.initial_state(B))
    return core((inputs, should_reset), state)

  net = hk.without_apply_rng(hk.transform(wrapped))
  inputs, reset = jnp.ones((B, FEATURES)), jnp.array([True, False])
  params = jax.jit(net.init)(jax.random.key(0), inputs, reset)
  output, _ = jax.jit(net.apply)(params, inputs, reset)
  assert output.shape == (B, 6)
  assert not np.allclose(output[0], output[1])


@both_cores
def test_vmap_equals_a_batch(cls):
  net, params, inputs, state = make(cls)
  expected, _ = net.apply(params, inputs, state)
  outside, _ = jax.vmap(net.apply, in_axes=(None, 0, 0))(params, inputs, state)
  np.testing.assert_allclose(outside, expected, atol=ATOL)

  def inside(inputs, state):
    core = cls(N, V, H)
    return hk.vmap(core, split_rng=False)(inputs, state)

  inside = hk.without_apply_rng(hk.transform(inside))
  np.testing.assert_allclose(
      inside.apply(params, inputs, state)[0], expected, atol=ATOL
  )


@both_cores
def test_hk_remat_of_the_core_leaves_the_gradients(cls):
  _, params, inputs, state = make(cls)

  def loss(remat, inputs, state):
    core = cls(N, V, H)
    step = hk.remat(core) if remat else core
    return jnp.sum(hk.dynamic_unroll(step, inputs, state)[0] ** 2)

  sequence = jnp.stack([inputs, 0.5 * inputs, -inputs])
  gradients = []
  for remat in (False, True):
    net = hk.without_apply_rng(hk.transform(functools.partial(loss, remat)))
    gradients.append(jax.jit(jax.grad(net.apply))(params, sequence, state))
  # The same sums, of up to 1e3 in size, perhaps in other fusions.
  jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-3),
      *gradients,
  )


@both_cores
def test_runs_under_pmap_with_typed_and_old_keys(cls):
  net, params, inputs, state = make(cls)
  for key in (jax.random.key(3), jax.random.PRNGKey(3)):
    fresh = net.init(key, inputs, state)
    assert jax.tree.map(jnp.shape, fresh) == jax.tree.map(jnp.shape, params)
  stacked = jnp.stack([inputs, inputs + 1.0])
  mapped = jax.pmap(net.apply, in_axes=(None, 0, None))
  for output, x in zip(mapped(params, stacked, state)[0], stacked, strict=True):
    np.testing.assert_allclose(
        output, net.apply(params, x, state)[0], atol=ATOL
    )


@both_cores
def test_an_empty_batch(cls):
  net, params, _, _ = make(cls)
  state = jax.tree.map(lambda s: s[:0], make(cls)[3])
  output, _ = net.apply(params, jnp.zeros((0, FEATURES)), state)
  assert output.shape == (0, N * D)
