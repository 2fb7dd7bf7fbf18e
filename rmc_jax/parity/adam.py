"""Adam as TensorFlow 1 computes it, for optax."""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax


class TensorFlowAdamState(NamedTuple):
  """The slots and counters of `tf.train.AdamOptimizer`."""

  m: Any
  v: Any
  beta1_power: jax.Array
  beta2_power: jax.Array


def tensorflow_adam(
  learning_rate: float,
  b1: float = 0.9,
  b2: float = 0.999,
  epsilon: float = 1e-8,
) -> optax.GradientTransformation:
  r"""Computes the update of `tf.train.AdamOptimizer`.

  .. math::

     \Delta = -\alpha \frac{\sqrt{1 - \beta_2^t}}{1 - \beta_1^t}
              \frac{m_t}{\sqrt{v_t} + \epsilon}

  Epsilon is added to the uncorrected :math:`\sqrt{v_t}` ("epsilon hat" of
  Kingma and Ba 2015, section 2). `optax.adam` adds it to the corrected one,
  where it weighs :math:`1 / \sqrt{1 - \beta_2^t}` times less, 32 times at the
  first update. Settings and the powers of beta are float32 for parameters of
  any dtype.
  """
  settings = np.array([learning_rate, b1, b2, epsilon], np.float32)
  rate, beta1, beta2, small = settings

  def init(params):
    zeros = jax.tree.map(jnp.zeros_like, params)
    return TensorFlowAdamState(
      zeros, zeros, jnp.asarray(beta1), jnp.asarray(beta2)
    )

  def update(updates, state, params=None):
    del params

    def first(m, g):
      return m + (g - m) * (1 - beta1.astype(g.dtype))

    def second(v, g):
      return v + (g * g - v) * (1 - beta2.astype(g.dtype))

    def change(m, v):
      power1 = state.beta1_power.astype(m.dtype)
      power2 = state.beta2_power.astype(m.dtype)
      alpha = rate.astype(m.dtype) * jnp.sqrt(1 - power2) / (1 - power1)
      return -alpha * m / (jnp.sqrt(v) + small.astype(m.dtype))

    m = jax.tree.map(first, state.m, updates)
    v = jax.tree.map(second, state.v, updates)
    next_state = TensorFlowAdamState(
      m, v, state.beta1_power * beta1, state.beta2_power * beta2
    )
    return jax.tree.map(change, m, v), next_state

  return optax.GradientTransformation(init, update)
