"""The version of rmc_jax: setup.cfg reads it without importing JAX."""

__version__ = '0.1.0'
