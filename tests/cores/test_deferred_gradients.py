"""Tests rmc_jax/cores/deferred_gradients.py."""

import haiku as hk
import jax
import jax.extend
import jax.numpy as jnp
import jmp
import numpy as np
import pytest

import rmc_jax

# B * N = 6 rows in a step and weights of 42 x 42 or more, so all are deferred.
T, B, FEATURES = 5, 2, 11
N, H, V = 3, 6, 7
POLICY = jmp.get_policy('params=float32,compute=bfloat16,output=float32')


def network(**kwargs):
  """Returns the apply function of an unroll, its parameters and inputs."""
  batch_major = not kwargs.get('time_major', True)

  def forward(inputs):
    core = rmc_jax.RelationalMemory(N, V, H, num_blocks=2)
    return rmc_jax.unroll(core, inputs, core.initial_state(B), **kwargs)

  net = hk.without_apply_rng(hk.transform(forward))
  inputs = np.random.default_rng(0).normal(size=(T, B, FEATURES))
  inputs = jnp.asarray(inputs.swapaxes(0, 1) if batch_major else inputs, 'f')
  return net.apply, jax.jit(net.init)(jax.random.key(1), inputs), inputs


def weighted_sum(outputs_and_state):
  """Sums outputs and state with distinct weights."""
  rng = np.random.default_rng(2)
  return sum(
    jnp.sum(x * jnp.asarray(rng.normal(size=x.shape), x.dtype))
    for x in outputs_and_state
  )


def make_loss(**kwargs):
  """Returns a loss of parameters and inputs, and both."""
  apply, params, inputs = network(**kwargs)
  return lambda *args: weighted_sum(apply(*args)), params, inputs


def gradients(**kwargs):
  loss, params, inputs = make_loss(**kwargs)
  return jax.jit(jax.grad(loss, argnums=(0, 1)))(params, inputs)


def assert_close(actual, expected):
  # Sums over T * B * N = 30 rows in different orders.
  for a, e in zip(
    jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    np.testing.assert_allclose(a, e, atol=1e-5 * max(1.0, np.abs(e).max()))


@pytest.mark.parametrize(
  'kwargs',
  [
    {},
    {'time_major': False},
    {'lengths': jnp.array([5, 3])},
    {'reset': jnp.arange(T * B).reshape(T, B) % 4 == 1},
    {'unroll': 2},
  ],
  ids=lambda kwargs: next(iter(kwargs), 'plain'),
)
def test_gradients_equal_those_of_the_plain_loop(kwargs):
  assert_close(
    gradients(**kwargs), gradients(defer_weight_gradients=False, **kwargs)
  )


def test_backward_loop_computes_no_weight_gradient():
  def weight_shaped_products_in_loop(**kwargs):
    loss, params, inputs = make_loss(**kwargs)
    jaxpr = jax.make_jaxpr(jax.grad(loss))(params, inputs)
    loops = [e for e in jaxpr.eqns if e.primitive.name == 'scan']
    assert len(loops) == 2  # forwards and backwards
    return sum(
      eqn.primitive.name == 'dot_general'
      and sorted(eqn.outvars[0].aval.shape) in ([42, 42], [42, 84], [42, 126])
      for eqn in all_equations(loops[-1].params['jaxpr'].jaxpr)
    )

  # Two projections, two MLP layers in each of two blocks, and the gates.
  assert weight_shaped_products_in_loop(defer_weight_gradients=False) == 7
  assert weight_shaped_products_in_loop() == 0


def all_equations(jaxpr):
  for eqn in jaxpr.eqns:
    yield eqn
    for inner in jax.extend.core.jaxprs_in_params(eqn.params):
      yield from all_equations(inner)


def test_gradients_smaller_than_their_factors_stay_in_the_loop():
  def forward(inputs):
    core = rmc_jax.RelationalMemory(N, 1, 2)  # D = 2: weights of 2 x 2 to 2 x 6
    return rmc_jax.unroll(core, inputs, core.initial_state(B))

  net = hk.without_apply_rng(hk.transform(forward))
  inputs = jnp.ones((T, B, FEATURES))
  params = jax.jit(net.init)(jax.random.key(0), inputs)
  # Only probes prevent forward mode.
  jax.jvp(lambda params: net.apply(params, inputs)[0], (params,), (params,))


@pytest.mark.slow
def test_second_derivatives_agree():
  def curvature(**kwargs):
    loss, params, inputs = make_loss(**kwargs)

    def slope(params):
      gradients = jax.tree.leaves(jax.grad(loss)(params, inputs))
      return sum(jnp.sum(jnp.square(g)) for g in gradients)

    return jax.jit(jax.grad(slope))(params)

  assert_close(curvature(), curvature(defer_weight_gradients=False))


def test_forward_mode_works_without_probes():
  loss, params, inputs = make_loss(defer_weight_gradients=False)
  loss = jax.jit(loss)
  still = jnp.zeros_like(inputs)
  _, along = jax.jvp(loss, (params, inputs), (params, still))
  expected = sum(
    jnp.vdot(g, p)
    for g, p in zip(
      jax.tree.leaves(jax.grad(loss)(params, inputs)),
      jax.tree.leaves(params),
      strict=True,
    )
  )
  # float32 sums of thousands of products.
  np.testing.assert_allclose(along, expected, rtol=1e-4)


def test_gradients_equal_the_plain_loop_under_a_policy():
  with hk.mixed_precision.push_policy(rmc_jax.RelationalMemory, POLICY):
    deferred = gradients()
    plain = gradients(defer_weight_gradients=False)
  exact = gradients()
  for d, p, e in zip(
    *map(jax.tree.leaves, (deferred, plain, exact)), strict=True
  ):
    assert d.dtype == p.dtype == jnp.float32
    # bfloat16 keeps 8 bits, and both round the same factors.
    scale = max(1.0, np.abs(e).max())
    np.testing.assert_allclose(d, p, atol=0.02 * scale)
  assert any(
    not np.array_equal(d, e)
    for d, e in zip(*map(jax.tree.leaves, (deferred, exact)), strict=True)
  )
