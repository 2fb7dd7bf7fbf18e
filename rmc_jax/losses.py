"""Losses that return a sum and its total weight.

Divide once, after summing both over all devices: a mean of per-device means is
wrong if the devices have different numbers of valid tokens.
"""

import chex
import jax.numpy as jnp
import optax

from rmc_jax.types import Array


def softmax_cross_entropy(
  logits: Array, labels: Array, weights: Array | None = None
) -> tuple[Array, Array]:
  r"""Sums the cross-entropy between softmax(logits) and the labels, in nats.

  .. math:: \sum_i w_i \left(\log \sum_c e^{z_{ic}} - z_{i y_i}\right),
            \quad \sum_i w_i

  Reduction: SUM over all leading axes, in float32.
  `jax.vmap(softmax_cross_entropy)` returns a sum and a weight per example.

  Args:
    logits: [..., C], C the number of classes.
    labels: [...] integers in 0..C-1; any value where the weight is 0. A label
      of C or more with a weight gives nan.
    weights: [...] weights or a boolean mask; None weights each label by 1.

  Returns:
    The sum [] and the total weight [], both float32.
  """
  chex.assert_type(labels, int)
  chex.assert_shape(labels, logits.shape[:-1])
  losses = optax.softmax_cross_entropy_with_integer_labels(
    logits.astype(jnp.float32), labels
  )  # [...]
  if weights is None:
    return losses.sum(), jnp.asarray(losses.size, jnp.float32)
  chex.assert_shape(weights, labels.shape)
  weights = weights.astype(jnp.float32)
  # A padded label may be out of range, and 0 * nan is nan.
  losses = jnp.where(weights == 0, 0.0, weights * losses)
  return losses.sum(), weights.sum()
