"""Parameter-free mathematics, checkable with NumPy alone."""

from rmc_jax.ops.attention import dot_product_attention
from rmc_jax.ops.attention import split_heads

__all__ = ['dot_product_attention', 'split_heads']
