"""Games as pure functions, for `jax.vmap`, `jax.jit` and `jax.lax.scan`."""
