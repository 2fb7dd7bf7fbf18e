"""The Relational Memory Core for JAX and Haiku."""

from rmc_jax.cores import PaperRelationalMemory
from rmc_jax.cores import RelationalMemory
from rmc_jax.unroll import unroll
from rmc_jax.version import __version__

__all__ = [
  'PaperRelationalMemory',
  'RelationalMemory',
  '__version__',
  'unroll',
]
