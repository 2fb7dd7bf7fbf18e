"""What every test runs under: the CPU as four devices, and strict promotion.

Platform and flags are in the environment, before anything imports JAX, because
JAX reads them once and the programs that tests start should have them too.
"""

import os
import pathlib
import platform

os.environ.update(
  JAX_PLATFORMS='cpu',
  # LLVM's optimisations cost four times what they save on arrays this small.
  # XLA's own passes stay on.
  XLA_FLAGS='--xla_force_host_platform_device_count=4'
  ' --xla_backend_optimization_level=0'
  ' --xla_llvm_disable_expensive_passes=true',
  # A bias that meets a batch must be broadcast on purpose.
  JAX_NUMPY_RANK_PROMOTION='raise',
)

from absl import logging
import jax
import pytest

# Most of the suite's time is compilation, so what is compiled is kept: a folder
# for each host, because compiled code fits the CPU that it was compiled on. Not
# for the programs that tests start: one that is killed leaves half an entry. To
# do without: JAX_ENABLE_COMPILATION_CACHE=false.
cache = pathlib.Path(__file__).parent.parent / '.cache/jax' / platform.node()
jax.config.update('jax_compilation_cache_dir', str(cache))
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


@pytest.fixture(autouse=True)
def verbosity():
  """What a program hides while it runs in a test, later tests still see."""
  before = logging.get_verbosity()
  yield
  logging.set_verbosity(before)
