"""What every test runs under: the CPU as four devices, and strict promotion.

Both are set here, before anything imports JAX, because JAX reads them once.
"""

import os

os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['XLA_FLAGS'] = (
  os.environ.get('XLA_FLAGS', '')
  + ' --xla_force_host_platform_device_count=4'
)

import jax

# A bias that meets a batch must be broadcast on purpose.
jax.config.update('jax_numpy_rank_promotion', 'raise')
