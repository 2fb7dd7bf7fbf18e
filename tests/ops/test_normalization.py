"""Tests rmc_jax/ops/normalization.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax import ops

B, M, X = 2, 5, 7


def make(dtype=np.float32):
  rng = np.random.default_rng(0)
  x = 3.0 + 2.0 * rng.normal(size=(B, M, X))
  return [
    jnp.asarray(a, dtype) for a in (x, rng.normal(size=X), rng.normal(size=X))
  ]


def plain(x, scale, offset):
  """The paper's formula, which JAX differentiates."""
  centred = x - x.mean(-1, keepdims=True)
  deviation = jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
  return centred / deviation * scale[None, None] + offset[None, None]


def test_equals_haiku():
  x, scale, offset = make()
  haikus = hk.without_apply_rng(
    hk.transform(lambda x: hk.LayerNorm(-1, True, True)(x))
  )
  params = {'layer_norm': {'scale': scale, 'offset': offset}}
  # A few roundings of values up to 5.
  np.testing.assert_allclose(
    ops.layer_norm(x, scale, offset), haikus.apply(params, x), atol=5e-6
  )


def test_derivatives_equal_those_of_the_plain_formula():
  with jax.enable_x64(True):
    x = make(np.float64)
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(B, M, X))
    along = tuple(jnp.asarray(rng.normal(size=a.shape)) for a in x)

    def loss(f):
      return lambda *x: jnp.sum(jnp.tanh(f(*x)) * weights)

    def slope(f):  # of the loss, along a direction, in forward mode
      return lambda *x: jax.jvp(loss(f), x, along)[1]

    for function in (loss, slope):  # first and second derivatives
      for got, expected in zip(
        jax.grad(function(ops.layer_norm), (0, 1, 2))(*x),
        jax.grad(function(plain), (0, 1, 2))(*x),
        strict=True,
      ):
        # The same float64 numbers in another order.
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-11)


def test_keeps_one_array_of_the_size_of_its_input():
  x, scale, offset = make()
  _, pull = jax.vjp(ops.layer_norm, x, scale, offset)
  kept = [leaf for leaf in jax.tree.leaves(pull) if leaf.shape == x.shape]
  # The normalised rows and the broadcast scale.
  assert len({id(leaf) for leaf in kept}) <= 2
