"""Tests rmc_jax/parity/adam.py."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rmc_jax.parity.adam import tensorflow_adam


def test_two_updates_by_hand():
  rate, b1, b2, epsilon = 0.5, 0.75, 0.9375, 0.25  # exact in binary
  optimizer = tensorflow_adam(rate, b1, b2, epsilon)
  params = {'w': jnp.array([1.0, -2.0, 3.0])}
  gradients = np.array([[0.5, -1.0, 0.0], [-2.0, 0.25, 0.0]], np.float32)
  state = optimizer.init(params)
  m = v = np.zeros(3)
  for t, gradient in enumerate(gradients, start=1):
    update, state = optimizer.update({'w': jnp.array(gradient)}, state)
    m = b1 * m + (1 - b1) * gradient
    v = b2 * v + (1 - b2) * gradient**2
    alpha = rate * np.sqrt(1 - b2**t) / (1 - b1**t)
    # A handful of float32 operations.
    np.testing.assert_allclose(
      update['w'], -alpha * m / (np.sqrt(v) + epsilon), rtol=1e-6
    )


def run(optimizer, updates=7):
  params = jnp.array([1.0, -0.5, 0.125])
  state = optimizer.init(params)
  for step in range(updates):
    gradient = jnp.sin(params * (step + 1))
    update, state = optimizer.update(gradient, state)
    params = optax.apply_updates(params, update)
  return params


def test_without_epsilon_it_is_optax_adam():
  # 1 - 0.999^t keeps few digits in float32, on each side others: 6e-8 in 1e-3,
  # half of that in its root, of 7 updates of 0.1 each.
  np.testing.assert_allclose(
    run(tensorflow_adam(0.1, epsilon=1e-30)),
    run(optax.adam(0.1, eps=1e-30)),
    atol=2e-5,
  )


def test_with_epsilon_it_is_not():
  ours = run(tensorflow_adam(0.1, epsilon=1e-2))
  assert jnp.max(jnp.abs(ours - run(optax.adam(0.1, eps=1e-2)))) > 1e-2


@pytest.mark.parametrize('dtype', ['float32', 'float16'])
def test_updates_keep_the_dtype(dtype):
  optimizer = tensorflow_adam(0.1, epsilon=1e-3)
  params = jnp.ones(3, dtype)
  update, _ = optimizer.update(params, optimizer.init(params))
  assert update.dtype == dtype
