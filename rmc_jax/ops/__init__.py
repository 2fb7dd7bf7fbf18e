"""Functions without parameters: attention, layer norm, softmaxes, DNC."""

from rmc_jax.ops.attention import dot_product_attention
from rmc_jax.ops.attention import split_heads
from rmc_jax.ops.normalization import layer_norm

__all__ = ['dot_product_attention', 'layer_norm', 'split_heads']
