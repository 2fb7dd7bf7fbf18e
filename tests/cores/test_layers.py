"""Tests rmc_jax/cores/layers.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.cores.layers import LayerNorm
from rmc_jax.cores.layers import Linear
from rmc_jax.cores.layers import MLP


def test_layer_norm_of_narrow_rows_has_float32_statistics():
  # Far off centre, where a bfloat16 mean and variance lose a tenth.
  rows = 100.0 + 10.0 * np.random.default_rng(0).normal(size=(5, 64))
  rows = jnp.asarray(rows, jnp.bfloat16)
  normed = hk.testing.transform_and_run(lambda: LayerNorm()(rows))()
  assert normed.dtype == jnp.float32
  exact = np.asarray(rows, np.float64)
  exact -= exact.mean(-1, keepdims=True)
  exact /= np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-5)
  # A float32 mean of 100 is exact to 1e-5, the spread is 10.
  np.testing.assert_allclose(normed, exact, atol=1e-5)


def test_linear_equals_haikus():
  x = jax.random.normal(jax.random.key(1), (2, 3, 5))
  net = hk.without_apply_rng(
      hk.transform(lambda x: Linear(7, name='linear')(x))
  )
  haikus = hk.without_apply_rng(hk.transform(lambda x: hk.Linear(7)(x)))
  params = haikus.init(jax.random.key(0), x)
  assert jax.tree.map(jnp.shape, net.init(jax.random.key(0), x)) == (
      jax.tree.map(jnp.shape, params)
  )
  np.testing.assert_array_equal(
      net.init(jax.random.key(0), x)['linear']['w'], params['linear']['w']
  )
  # Sums of 5 products, in another order.
  np.testing.assert_allclose(
      net.apply(params, x), haikus.apply(params, x), atol=1e-6
  )


def test_mlp_has_no_relu_after_its_last_layer():
  x = jax.random.normal(jax.random.key(1), (11, 5))
  net = hk.without_apply_rng(hk.transform(lambda x: MLP(5, 2, name='mlp')(x)))
  params = net.init(jax.random.key(0), x)
  hidden = np.maximum(x @ np.asarray(params['mlp/linear_0']['w']), 0)
  expected = hidden @ np.asarray(params['mlp/linear_1']['w'])
  np.testing.assert_allclose(net.apply(params, x), expected, atol=1e-6)
  assert (expected < 0).any()
