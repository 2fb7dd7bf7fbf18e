"""What every test runs under: the CPU as four devices, and strict promotion.

All of it is set before anything imports JAX, because JAX reads it once; and in
the environment, so that the programs that tests start get it too.
"""

import os
import pathlib
import platform

# Most of the suite's time is compilation, so what is compiled is kept. A folder
# for each host: compiled code fits the CPU that it was compiled on. To do
# without: JAX_ENABLE_COMPILATION_CACHE=false.
cache = pathlib.Path(__file__).parent.parent / '.cache/jax' / platform.node()

os.environ.update(
  JAX_PLATFORMS='cpu',
  # LLVM's optimisations cost four times what they save on arrays this small.
  # XLA's own passes stay on.
  XLA_FLAGS='--xla_force_host_platform_device_count=4'
  ' --xla_backend_optimization_level=0'
  ' --xla_llvm_disable_expensive_passes=true',
  # A bias that meets a batch must be broadcast on purpose.
  JAX_NUMPY_RANK_PROMOTION='raise',
  JAX_COMPILATION_CACHE_DIR=str(cache),
  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0',
  JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES='-1',
)
