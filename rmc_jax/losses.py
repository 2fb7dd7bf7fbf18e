"""Losses that return a sum and the weight it was summed over.

A mean is taken once, by whoever has seen every device: a mean of per-device
means is wrong as soon as the devices hold different numbers of valid tokens.
"""

import chex
import jax.numpy as jnp
import optax

from rmc_jax.types import Array


def softmax_cross_entropy(
  logits: Array, labels: Array, weights: Array | None = None
) -> tuple[Array, Array]:
  r"""Summed cross-entropy between softmax(logits) and the labels, in nats.

  .. math:: \sum_i w_i \left(\log \sum_c e^{z_{ic}} - z_{i y_i}\right),
            \quad \sum_i w_i

  Reduction: SUM over all leading axes, in float32 whatever the dtype of the
  logits. `jax.vmap(softmax_cross_entropy)` gives one sum and one weight for
  each example.

  Args:
    logits: [..., C], C the number of classes.
    labels: [...] integers in 0..C-1; any value where the weight is 0. A label
      of C or more with a weight gives nan, which the update refuses to apply.
    weights: [...] how much each label counts, 0 to leave it out (a mask of
      bools will do); None counts each as 1.

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
  # Not a plain product: a padded label may be out of range, and 0 * nan is nan.
  losses = jnp.where(weights == 0, 0.0, weights * losses)
  return losses.sum(), weights.sum()
