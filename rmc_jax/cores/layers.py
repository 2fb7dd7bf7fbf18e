"""The layers a memory core is made of, with their numeric policy.

A `jmp` policy narrows the factors of matrix products and nothing else: sums are
kept in float32 or wider, and so are the statistics of layer norms.
"""

import functools
import math

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np

from rmc_jax.cores.deferred_gradients import open_tap
from rmc_jax.cores.deferred_gradients import Product
from rmc_jax.cores.deferred_gradients import Tap
from rmc_jax.cores.deferred_gradients import weight_product
from rmc_jax.ops import layer_norm
from rmc_jax.types import Array


class Linear(hk.Module):
  """`x W + b` with factors in the policy's compute dtype, summed in float32.

  Parameters, names and initial values are those of `hk.Linear`, and of the
  original's `snt.Linear`: truncated normal `w` [in, out] with standard
  deviation 1/sqrt(in), `b` [out] of zeros.
  """

  def __init__(
    self,
    output_size: int,
    with_bias: bool = True,
    policy: jmp.Policy | None = None,
    name: str | None = None,
  ):
    super().__init__(name=name)
    self.output_size = output_size
    self.with_bias = with_bias
    self._policy = policy

  def __call__(self, x: Array) -> Array:
    input_size = x.shape[-1]
    w = self._weight(input_size, x.dtype)
    compute = compute_dtype(self._policy) or jnp.promote_types(x.dtype, w.dtype)
    # One product over all rows: XLA's fast path on a CPU, also for d w.
    out = weight_product(
      functools.partial(_product, dtype=compute),
      x.reshape(math.prod(x.shape[:-1]), input_size),
      w,
      self._open_tap,
    )  # [rows, out]
    if self.with_bias:
      b = hk.get_parameter('b', [self.output_size], w.dtype, jnp.zeros)
      out += jnp.broadcast_to(b.astype(out.dtype), out.shape)
    return out.reshape(*x.shape[:-1], self.output_size)

  def make_weight(
    self, input_size: int, input_dtype: jnp.dtype, fan_in: int
  ) -> None:
    """Makes the weight ahead of its use, as part of one with more inputs.

    Args:
      input_size: of the inputs that are to come.
      input_dtype: theirs, which the weight will have unless a policy says else.
      fan_in: of the whole; `w` starts with standard deviation 1/sqrt(fan_in).
    """
    self._weight(input_size, input_dtype, fan_in)

  def _weight(
    self, input_size: int, input_dtype: jnp.dtype, fan_in: int | None = None
  ) -> Array:
    policy = active_policy(self._policy)
    dtype = policy.param_dtype if policy else input_dtype
    w_init = hk.initializers.TruncatedNormal(
      1.0 / np.sqrt(fan_in or input_size)
    )
    return hk.get_parameter('w', [input_size, self.output_size], dtype, w_init)

  def _open_tap(self, product: Product, rows: jax.ShapeDtypeStruct) -> Tap:
    """For a loop over this layer that forms the weight's gradient after it."""
    return open_tap(product, rows, self._weight(rows.shape[-1], rows.dtype))


class LayerNorm(hk.Module):
  """`hk.LayerNorm` over the last axis, in float32 also for narrower inputs.

  Haiku's own module computes mean and variance in the dtype of its input, which
  in bfloat16 loses up to 5 % of the result. Parameters: `scale` [X] of ones,
  `offset` [X] of zeros. See `rmc_jax.ops.layer_norm`.
  """

  def __call__(self, x: Array) -> Array:
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    scale = hk.get_parameter('scale', x.shape[-1:], x.dtype, jnp.ones)
    offset = hk.get_parameter('offset', x.shape[-1:], x.dtype, jnp.zeros)
    return layer_norm(x, scale, offset)


class MLP(hk.Module):
  """`num_layers` Linears of one width with ReLU between, none after the last.

  `hk.nets.MLP` without its policy-blind Linears.
  """

  @hk.name_like('__call__')
  def __init__(
    self,
    width: int,
    num_layers: int,
    policy: jmp.Policy | None = None,
    name: str | None = None,
  ):
    super().__init__(name=name)
    self._layers = [
      Linear(width, policy=policy, name=f'linear_{i}')
      for i in range(num_layers)
    ]

  def __call__(self, x: Array) -> Array:
    for i, layer in enumerate(self._layers):
      x = layer(x if i == 0 else jax.nn.relu(x))
    return x


def _product(x: Array, w: Array, dtype: jnp.dtype) -> Array:
  """x W with narrow factors, summed in float32 or wider."""
  sums = jnp.promote_types(dtype, jnp.float32)
  return jnp.dot(x.astype(dtype), w.astype(dtype), preferred_element_type=sums)


def active_policy(own: jmp.Policy | None) -> jmp.Policy | None:
  """The policy of the core, else that of whichever module is calling it."""
  return own or hk.mixed_precision.current_policy()


def compute_dtype(own: jmp.Policy | None) -> jnp.dtype | None:
  """The dtype `active_policy` wants products in, or None without a policy."""
  policy = active_policy(own)
  return jnp.dtype(policy.compute_dtype) if policy else None
