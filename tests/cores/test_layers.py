"""Tests rmc_jax/cores/layers.py."""

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np
import pytest

from rmc_jax.cores.layers import Conv2D
from rmc_jax.cores.layers import LayerNorm
from rmc_jax.cores.layers import Linear
from rmc_jax.cores.layers import MLP


def test_layer_norm_of_bfloat16_rows_has_float32_statistics():
  # With a large mean, where bfloat16 statistics are off by a tenth.
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
  # Sums of 5 products in another order.
  np.testing.assert_allclose(
    net.apply(params, x), haikus.apply(params, x), atol=1e-6
  )


def test_make_weight_starts_like_part_of_a_larger_weight():
  # A normal truncated at two standard deviations has spread 0.8796.
  rows, fan_in, columns = 100, 900, 60

  def forward(x, whole=None):
    linear = Linear(columns, name='linear')
    if whole:
      linear.make_weight(rows, x.dtype, whole)
    return linear(x)

  x = jax.random.normal(jax.random.key(1), (7, rows))
  net = hk.without_apply_rng(hk.transform(forward))
  params = net.init(jax.random.key(0), x, fan_in)
  assert jax.tree.map(jnp.shape, params) == {
    'linear': {'w': (rows, columns), 'b': (columns,)}
  }
  scaled = np.asarray(params['linear']['w']) * np.sqrt(fan_in)
  assert 1.9 < np.abs(scaled).max() <= 2.0 + 1e-5
  # 6,000 draws: five standard errors.
  assert abs(scaled.std() - 0.8796) < 5 * 0.88 / np.sqrt(2 * scaled.size)
  # The call uses that weight.
  np.testing.assert_array_equal(
    net.apply(params, x, fan_in), net.apply(params, x)
  )
  # A fan-in equal to the input size changes nothing.
  np.testing.assert_array_equal(
    net.init(jax.random.key(0), x, rows)['linear']['w'],
    net.init(jax.random.key(0), x)['linear']['w'],
  )


def test_make_weight_uses_the_dtype_of_inputs_or_policy():
  def make(x):
    Linear(3, name='linear').make_weight(5, x.dtype, 11)

  net = hk.transform(make)
  x = jnp.ones((2, 5), jnp.bfloat16)
  (weight,) = jax.tree.leaves(net.init(jax.random.key(0), x))
  assert weight.dtype == jnp.bfloat16
  policy = jmp.get_policy('params=float32,compute=bfloat16,output=bfloat16')
  with hk.mixed_precision.push_policy(Linear, policy):
    (weight,) = jax.tree.leaves(net.init(jax.random.key(0), x))
  assert weight.dtype == jnp.float32


def test_refuses_inputs_of_another_size_than_make_weight():
  def forward(x):
    linear = Linear(3)
    linear.make_weight(5, x.dtype, 11)
    return linear(x)

  with pytest.raises(ValueError, match='linear/w.*5, 3.*6, 3'):
    hk.transform(forward).init(jax.random.key(0), jnp.ones((2, 6)))


def test_mlp_has_no_relu_after_its_last_layer():
  x = jax.random.normal(jax.random.key(1), (11, 5))
  net = hk.without_apply_rng(hk.transform(lambda x: MLP(5, 2, name='mlp')(x)))
  params = net.init(jax.random.key(0), x)
  hidden = np.maximum(x @ np.asarray(params['mlp/linear_0']['w']), 0)
  expected = hidden @ np.asarray(params['mlp/linear_1']['w'])
  np.testing.assert_allclose(net.apply(params, x), expected, atol=1e-6)
  assert (expected < 0).any()


@pytest.mark.parametrize(
  'kernel_size, stride', [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (2, 3)]
)
@pytest.mark.parametrize('size', [(5, 7), (4, 1)])
def test_convolution_equals_haikus(kernel_size, stride, size):
  x = jax.random.normal(jax.random.key(1), (2, 3, *size, 6))
  nets = [
    hk.without_apply_rng(hk.transform(convolution))
    for convolution in (
      lambda x: Conv2D(11, kernel_size, stride, name='conv')(x),
      lambda x: hk.BatchApply(hk.Conv2D(11, kernel_size, stride, name='conv'))(
        x
      ),
    )
  ]
  params, expected = (net.init(jax.random.key(0), x) for net in nets)
  # As in hk.Linear, the scale is computed in another order.
  np.testing.assert_allclose(
    params['conv']['w'], expected['conv']['w'], rtol=1e-6
  )
  params['conv']['b'] = jnp.arange(11.0)
  ours, haikus = (net.apply(params, x) for net in nets)
  # Sums of up to 54 products of order 1.
  np.testing.assert_allclose(ours, haikus, atol=1e-5)
