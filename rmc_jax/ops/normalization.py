"""Layer normalisation with a closed-form derivative."""

import jax
import jax.numpy as jnp

from rmc_jax.types import Array

_EPSILON = 1e-5


@jax.custom_jvp
def layer_norm(x: Array, scale: Array, offset: Array) -> Array:
  r"""Normalises each row over its last axis (Ba et al. 2016, eq. 4).

  .. math::

     \hat x = (x - \mu) \, r, \quad r = (\sigma^2 + 10^{-5})^{-1/2}, \quad
     y = \hat x \circ \mathrm{scale} + \mathrm{offset}

  with mean :math:`\mu` and biased variance :math:`\sigma^2` of the row. The
  numbers are those of `hk.LayerNorm`. The derivative has a closed form,

  .. math::

     d \hat x = r \, (dx - \overline{dx} - \hat x \, \overline{\hat x dx})

  where a bar is the mean of a row. It keeps one array of the size of x for the
  backward pass, and supports forward and reverse mode to any order.

  Args:
    x: [..., M, X], in float32 or wider.
    scale: [X].
    offset: [X].
  """
  normed, _ = _normalize(x)
  return normed * _rows(scale, x) + _rows(offset, x)


@layer_norm.defjvp
def _layer_norm_jvp(primals, tangents):
  x, scale, offset = primals
  dx, dscale, doffset = tangents
  normed, inverse = _normalize(x)
  drift = _mean(dx) + normed * _mean(normed * dx)
  dnormed = inverse * (dx - drift)
  return (
    normed * _rows(scale, x) + _rows(offset, x),
    dnormed * _rows(scale, x) + normed * _rows(dscale, x) + _rows(doffset, x),
  )


def _normalize(x: Array) -> tuple[Array, Array]:
  """Returns the normalised rows and the inverse standard deviations."""
  centred = x - _mean(x)
  inverse = jax.lax.rsqrt(_mean(jnp.square(centred)) + _EPSILON)  # [..., M, 1]
  return centred * inverse, inverse


def _mean(x: Array) -> Array:
  return jnp.mean(x, axis=-1, keepdims=True)


def _rows(vector: Array, x: Array) -> Array:
  return jnp.broadcast_to(vector, x.shape)
