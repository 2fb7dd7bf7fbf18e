"""Layers of the cores, with mixed precision.

A `jmp` policy sets the dtype of the factors of matrix products only. Sums and
the statistics of layer norms stay in float32 or wider.
"""

from collections.abc import Callable
import functools
import math

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np

from rmc_jax.cores.deferred_gradients import make_probe
from rmc_jax.cores.deferred_gradients import Product
from rmc_jax.cores.deferred_gradients import weight_product
from rmc_jax.cores.deferred_gradients import WeightGradientProbe
from rmc_jax.ops import layer_norm
from rmc_jax.types import Array


class Linear(hk.Module):
  """`x W + b` with factors in the policy's compute dtype, summed in float32.

  Parameters, names and initial values are those of `hk.Linear` and
  `snt.Linear`: truncated normal `w` [in, out] with standard deviation
  1/sqrt(in), `b` [out] of zeros.
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
    w = self._weight(x.shape[-1], x.dtype)
    # XLA for CPUs is fastest with one product over all rows.
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = self._multiply(_product, rows, w)  # [rows, out]
    if self.with_bias:
      b = hk.get_parameter('b', [self.output_size], w.dtype, jnp.zeros)
      out += jnp.broadcast_to(b.astype(out.dtype), out.shape)
    return out.reshape(*x.shape[:-1], self.output_size)

  def make_weight(
    self, input_size: int, input_dtype: jnp.dtype, fan_in: int
  ) -> None:
    """Creates the weight as part of a larger one, before its first use.

    Args:
      input_size: the number of input features.
      input_dtype: the dtype of the inputs, and of the weight without a policy.
      fan_in: the input size of the larger weight; `w` starts with standard
        deviation 1/sqrt(fan_in).
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
    w = hk.get_parameter('w', self._weight_shape(input_size), dtype, w_init)
    return w.reshape(input_size, self.output_size)

  def _weight_shape(self, input_size: int) -> list[int]:
    return [input_size, self.output_size]

  def _multiply(
    self, product: Callable[..., Array], x: Array, w: Array
  ) -> Array:
    """Computes `product(x, w, dtype)`; the gradient of w can be deferred."""
    dtype = compute_dtype(self._policy) or jnp.promote_types(x.dtype, w.dtype)
    product = functools.partial(product, dtype=dtype)
    return weight_product(product, x, w, self._make_probe)

  def _make_probe(
    self, product: Product, inputs: jax.ShapeDtypeStruct
  ) -> WeightGradientProbe:
    w = self._weight(inputs.shape[-1], inputs.dtype)
    return make_probe(product, inputs, w)


class Conv2D(Linear):
  """A convolution with SAME padding, as one product over all patches.

  Parameters, names, initial values and numbers are those of `hk.Conv2D`: `w`
  [kernel, kernel, channels, output channels], `b` [output channels]. For the
  few rows, columns and channels of a game, products are several times as fast
  on a CPU as XLA's convolutions and their gradients.
  """

  def __init__(
    self,
    output_channels: int,
    kernel_size: int,
    stride: int = 1,
    with_bias: bool = True,
    policy: jmp.Policy | None = None,
    name: str | None = None,
  ):
    super().__init__(output_channels, with_bias, policy, name)
    self._kernel_size = kernel_size
    self._stride = stride

  def __call__(self, x: Array) -> Array:
    """Returns [..., rows / stride, columns / stride, output channels]."""
    return super().__call__(patches(x, self._kernel_size, self._stride))

  def _weight_shape(self, input_size: int) -> list[int]:
    kernel = self._kernel_size
    return [kernel, kernel, input_size // kernel**2, self.output_size]


class LayerNorm(hk.Module):
  """`hk.LayerNorm` over the last axis, in float32 or wider.

  `hk.LayerNorm` computes mean and variance in the dtype of its input, which in
  bfloat16 is off by up to 5 %. Parameters: `scale` [X] of ones, `offset` [X] of
  zeros. See `rmc_jax.ops.layer_norm`.
  """

  def __call__(self, x: Array) -> Array:
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    scale = hk.get_parameter('scale', x.shape[-1:], x.dtype, jnp.ones)
    offset = hk.get_parameter('offset', x.shape[-1:], x.dtype, jnp.zeros)
    return layer_norm(x, scale, offset)


class MLP(hk.Module):
  """`num_layers` Linears of one width with ReLUs between them.

  Unlike those of `hk.nets.MLP`, the layers follow the core's policy.
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


def patches(images: Array, size: int, stride: int = 1) -> Array:
  """Returns the cells around each cell, those beyond the edges zero.

  Args:
    images: [..., rows, columns, channels]
    size: rows and columns of a patch.
    stride: distance between patches.

  Returns:
    [..., rows / stride, columns / stride, size * size * channels], rounded up;
    the padding is TensorFlow's SAME.
  """
  *leading, rows, columns, _ = images.shape
  counts = [-(-length // stride) for length in (rows, columns)]
  pads = []
  for length, count in zip((rows, columns), counts, strict=True):
    total = max((count - 1) * stride + size - length, 0)
    pads.append((total // 2, total - total // 2))
  images = jnp.pad(images, [*[(0, 0)] * len(leading), *pads, (0, 0)])
  down, right = (slice(None, stride * count, stride) for count in counts)
  shifted = [
    images[..., i:, j:, :][..., down, right, :]
    for i in range(size)
    for j in range(size)
  ]
  return jnp.concatenate(shifted, -1)


def _product(x: Array, w: Array, dtype: jnp.dtype) -> Array:
  """Computes x W with factors in `dtype`, summed in float32 or wider."""
  sum_dtype = jnp.promote_types(dtype, jnp.float32)
  return jnp.dot(
    x.astype(dtype), w.astype(dtype), preferred_element_type=sum_dtype
  )


def active_policy(own: jmp.Policy | None) -> jmp.Policy | None:
  """Returns the policy of the core, or else of the module that calls it."""
  return own or hk.mixed_precision.current_policy()


def compute_dtype(own: jmp.Policy | None) -> jnp.dtype | None:
  """Returns the compute dtype of `active_policy`, None without a policy."""
  policy = active_policy(own)
  return jnp.dtype(policy.compute_dtype) if policy else None
