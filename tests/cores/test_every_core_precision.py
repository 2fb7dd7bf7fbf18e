"""Tests what every core must do with narrow and wide numbers."""

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np

import rmc_jax
from rmc_jax.cores.dnc import DNC
from rmc_jax.models import SequenceClassifier
from tests.cores.every_core import anew
from tests.cores.every_core import assert_close
from tests.cores.every_core import ATOL
from tests.cores.every_core import B
from tests.cores.every_core import equations
from tests.cores.every_core import every_core
from tests.cores.every_core import FEATURES
from tests.cores.every_core import make
from tests.cores.every_core import normal
from tests.cores.every_core import T
from tests.cores.every_core import transform

POLICY = jmp.get_policy('params=float32,compute=bfloat16,output=float32')


def product_dtypes(f, *args):
  """(factors' dtypes, result's dtype) of every matrix product in `f`."""
  return {
    (
      tuple(sorted({str(v.aval.dtype) for v in eqn.invars})),
      str(eqn.outvars[0].aval.dtype),
    )
    for eqn in equations(jax.make_jaxpr(anew(f))(*args).jaxpr)
    if eqn.primitive.name == 'dot_general'
  }


def wide_products(build):
  """Those that no policy narrows: a DNC's addresses must be exact."""
  return {(('float32',), 'float32')} if build.func is DNC else set()


def dtypes_of(tree):
  return {str(leaf.dtype) for leaf in jax.tree.leaves(tree)}


@every_core
def test_policy_narrows_the_factors_of_products_and_no_sum(build):
  net, params, inputs, state = make(build)
  assert product_dtypes(net.apply, params, inputs, state) == {
    (('float32',), 'float32')
  }
  exact, _ = anew(net.apply)(params, inputs, state)
  with hk.mixed_precision.push_policy(build.func, POLICY):
    fresh = jax.eval_shape(net.init, jax.random.key(0), inputs, state)
    assert dtypes_of(fresh) == {'float32'}
    assert product_dtypes(net.apply, params, inputs, state) == {
      (('bfloat16',), 'float32'),
      *wide_products(build),
    }
    output, next_state = anew(net.apply)(params, inputs, state)
  assert output.dtype == jnp.float32
  assert dtypes_of(next_state) == {'float32'}
  # Factors keep 8 bits, 0.4 %, of terms of order 1 a few layers deep.
  np.testing.assert_allclose(output, exact, atol=0.15)
  assert np.abs(output - exact).max() > 1e-4


def test_policy_leaves_the_memory_unrounded():
  # An open forget gate and a shut input gate hand the memory on as it is.
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
def test_policy_of_a_model_that_is_given_the_core_narrows_all_products(build):
  net = transform(lambda x: SequenceClassifier(build(), 4, (11,))(x))
  inputs = jnp.ones((B, T, FEATURES))
  with hk.mixed_precision.push_policy(SequenceClassifier, POLICY):
    params = jax.eval_shape(net.init, jax.random.key(0), inputs)
    dtypes = product_dtypes(net.apply, params, inputs)
  assert dtypes_of(params) == {'float32'}
  # The read-out is Haiku's own, whose sums are as narrow as its factors.
  assert dtypes == {
    (('bfloat16',), 'float32'),
    (('bfloat16',), 'bfloat16'),
    *wide_products(build),
  }


@every_core
def test_a_state_narrowed_on_its_way_is_widened_before_the_loop(build):
  class Agent(hk.Module):
    def __call__(self, inputs, state):
      return rmc_jax.unroll(build(), inputs, state)

  net = transform(lambda *args: Agent()(*args))
  state = make(build)[-1]
  inputs = jnp.ones((T, B, FEATURES))
  with hk.mixed_precision.push_policy(Agent, POLICY):
    params = jax.eval_shape(net.init, jax.random.key(0), inputs, state)
    jaxpr = jax.make_jaxpr(net.apply)(params, inputs, state).jaxpr
  assert 'bfloat16' in {  # what Haiku made of the state
    str(v.aval.dtype) for eqn in jaxpr.eqns for v in eqn.outvars
  }
  (loop,) = (e for e in equations(jaxpr) if e.primitive.name == 'scan')
  stacked = [v.aval for v in loop.outvars if v.aval.shape[:1] == (T,)]
  carry = [v.aval for v in loop.outvars if v.aval.shape[:1] != (T,)]
  assert len(stacked) == 1  # the outputs
  # It would lose digits at every step. The other entry counts the steps.
  assert {str(aval.dtype) for aval in carry if aval.ndim} == {'float32'}


@every_core
def test_narrow_inputs_and_states_without_a_policy(build):
  net, params, inputs, state = make(build)
  _, exact = anew(net.apply)(params, inputs, state)
  narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), (inputs, state))
  _, wide_state = anew(net.apply)(params, narrow[0], state)
  assert dtypes_of(wide_state) == {'float32'}
  _, narrow_state = anew(net.apply)(params, *narrow)
  assert dtypes_of(narrow_state) == {'bfloat16'}
  # Inputs and results keep 8 bits; what is between is in float32.
  assert_close(jax.tree.map(np.float32, narrow_state), exact, atol=0.1)


@every_core
def test_float64_is_float64_throughout(build):
  net, params, inputs, state = make(build)
  single, _ = anew(net.apply)(params, inputs, state)
  with jax.enable_x64(True):
    double = jax.tree.map(
      lambda x: jnp.asarray(np.float64(x)), (params, inputs, state)
    )
    output, next_state = anew(net.apply)(*double)
    assert product_dtypes(net.apply, *double) == {(('float64',), 'float64')}
  assert output.dtype == np.float64
  assert dtypes_of(next_state) == {'float64'}
  np.testing.assert_allclose(output, single, atol=ATOL)
