"""Tests the precision of every core under policies and in other dtypes."""

from concurrent import futures
import dataclasses

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np
import pytest

import rmc_jax
from rmc_jax.cores import build
from rmc_jax.cores.build import build_core
from rmc_jax.cores.dnc import DNC
from rmc_jax.models import SequenceClassifier
from tests.cores.every_core import assert_close
from tests.cores.every_core import ATOL
from tests.cores.every_core import B
from tests.cores.every_core import CONFIGS
from tests.cores.every_core import CORES
from tests.cores.every_core import equations
from tests.cores.every_core import every_core
from tests.cores.every_core import FEATURES
from tests.cores.every_core import jit_without_cache
from tests.cores.every_core import make
from tests.cores.every_core import normal
from tests.cores.every_core import T
from tests.cores.every_core import transform

POLICY = jmp.get_policy('params=float32,compute=bfloat16,output=float32')


def product_dtypes(f, *args):
  """Returns the dtypes of factors and result of every matrix product in `f`."""
  return {
    (
      tuple(sorted({str(v.aval.dtype) for v in eqn.invars})),
      str(eqn.outvars[0].aval.dtype),
    )
    for eqn in equations(jax.make_jaxpr(jit_without_cache(f))(*args).jaxpr)
    if eqn.primitive.name == 'dot_general'
  }


def float32_products(build):
  """Returns the products to which no policy applies: a DNC's addressing."""
  return {(('float32',), 'float32')} if build.func is DNC else set()


def dtypes_of(tree):
  return {str(leaf.dtype) for leaf in jax.tree.leaves(tree)}


@every_core
def test_policy_sets_the_dtype_of_factors_but_not_of_sums(build):
  net, params, inputs, state = make(build)
  assert product_dtypes(net.apply, params, inputs, state) == {
    (('float32',), 'float32')
  }
  exact, _ = jit_without_cache(net.apply)(params, inputs, state)
  with hk.mixed_precision.push_policy(build.func, POLICY):
    fresh = jax.eval_shape(net.init, jax.random.key(0), inputs, state)
    assert dtypes_of(fresh) == {'float32'}
    assert product_dtypes(net.apply, params, inputs, state) == {
      (('bfloat16',), 'float32'),
      *float32_products(build),
    }
    output, next_state = jit_without_cache(net.apply)(params, inputs, state)
  assert output.dtype == jnp.float32
  assert dtypes_of(next_state) == {'float32'}
  # bfloat16 factors keep 8 bits, 0.4 %, of terms of order 1 in a few layers.
  np.testing.assert_allclose(output, exact, atol=0.15)
  assert np.abs(output - exact).max() > 1e-4


@pytest.mark.parametrize('name', CONFIGS)
def test_compute_dtype_of_a_configuration_is_that_policy(name):
  def step(compute_dtype):
    config = dataclasses.replace(CONFIGS[name], compute_dtype=compute_dtype)
    step = transform(lambda *args: build_core(config)(*args))
    fresh = jax.eval_shape(step.init, jax.random.key(0), inputs, state)
    assert dtypes_of(fresh) == {'float32'}
    return jit_without_cache(step.apply)(params, inputs, state)

  _, core = build.CORES[CONFIGS[name].name]
  _, params, inputs, state = make(CORES[name])
  exact, narrow = step('float32'), step('bfloat16')
  assert dtypes_of(narrow) == {'float32'}
  assert np.abs(narrow[0] - exact[0]).max() > 1e-4
  with hk.mixed_precision.push_policy(core, POLICY):
    # The default does not replace a policy of the caller.
    jax.tree.map(np.testing.assert_array_equal, step('float32'), narrow)


def test_compute_dtype_holds_in_every_thread():
  # As in those of actors; a policy of Haiku holds in one.
  config = dataclasses.replace(CONFIGS['lstm'], compute_dtype='bfloat16')
  step = transform(lambda *args: build_core(config)(*args))
  _, *args = make(CORES['lstm'])
  with futures.ThreadPoolExecutor(1) as pool:
    dtypes = pool.submit(product_dtypes, step.apply, *args).result()
  assert dtypes == {(('bfloat16',), 'float32')}


def test_policy_leaves_the_memory_unrounded():
  # An open forget gate and a closed input gate copy the memory.
  def step(x, state):
    core = rmc_jax.RelationalMemory(
      3, 7, 5, gate_style='memory', forget_bias=50.0, input_bias=-50.0
    )
    return core(x, state)

  net = transform(step)
  inputs, memory = normal(B, FEATURES), normal(B, 3, 35)
  with hk.mixed_precision.push_policy(rmc_jax.RelationalMemory, POLICY):
    params = net.init(jax.random.key(0), inputs, memory)
    _, next_memory = net.apply(params, inputs, memory)
  np.testing.assert_array_equal(next_memory, memory)
  assert not np.array_equal(memory, memory.astype(jnp.bfloat16))


@every_core
def test_policy_of_a_surrounding_model_applies_to_the_core(build):
  net = transform(lambda x: SequenceClassifier(build(), 4, (11,))(x))
  inputs = jnp.ones((B, T, FEATURES))
  with hk.mixed_precision.push_policy(SequenceClassifier, POLICY):
    params = jax.eval_shape(net.init, jax.random.key(0), inputs)
    dtypes = product_dtypes(net.apply, params, inputs)
  assert dtypes_of(params) == {'float32'}
  # The read-out uses hk.Linear, whose sums have the dtype of its factors.
  assert dtypes == {
    (('bfloat16',), 'float32'),
    (('bfloat16',), 'bfloat16'),
    *float32_products(build),
  }


@every_core
def test_unroll_upcasts_a_state_that_a_policy_cast(build):
  class Agent(hk.Module):
    def __call__(self, inputs, state):
      return rmc_jax.unroll(build(), inputs, state)

  net = transform(lambda *args: Agent()(*args))
  state = make(build)[-1]
  inputs = jnp.ones((T, B, FEATURES))
  with hk.mixed_precision.push_policy(Agent, POLICY):
    params = jax.eval_shape(net.init, jax.random.key(0), inputs, state)
    jaxpr = jax.make_jaxpr(net.apply)(params, inputs, state).jaxpr
  assert 'bfloat16' in {  # Haiku's cast of the state
    str(v.aval.dtype) for eqn in jaxpr.eqns for v in eqn.outvars
  }
  (loop,) = (e for e in equations(jaxpr) if e.primitive.name == 'scan')
  stacked = [v.aval for v in loop.outvars if v.aval.shape[:1] == (T,)]
  carry = [v.aval for v in loop.outvars if v.aval.shape[:1] != (T,)]
  assert len(stacked) == 1  # the outputs
  # bfloat16 would lose digits at every step. The scalar counts the steps.
  assert {str(aval.dtype) for aval in carry if aval.ndim} == {'float32'}


@every_core
def test_bfloat16_inputs_and_states_without_a_policy(build):
  net, params, inputs, state = make(build)
  _, exact = jit_without_cache(net.apply)(params, inputs, state)
  narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), (inputs, state))
  _, wide_state = jit_without_cache(net.apply)(params, narrow[0], state)
  assert dtypes_of(wide_state) == {'float32'}
  _, narrow_state = jit_without_cache(net.apply)(params, *narrow)
  assert dtypes_of(narrow_state) == {'bfloat16'}
  # Inputs and results are in bfloat16, computations in float32.
  assert_close(jax.tree.map(np.float32, narrow_state), exact, atol=0.1)


@every_core
def test_float64_is_float64_throughout(build):
  net, params, inputs, state = make(build)
  single, _ = jit_without_cache(net.apply)(params, inputs, state)
  with jax.enable_x64(True):
    double = jax.tree.map(
      lambda x: jnp.asarray(np.float64(x)), (params, inputs, state)
    )
    output, next_state = jit_without_cache(net.apply)(*double)
    assert product_dtypes(net.apply, *double) == {(('float64',), 'float64')}
  assert output.dtype == np.float64
  assert dtypes_of(next_state) == {'float64'}
  np.testing.assert_allclose(output, single, atol=ATOL)
