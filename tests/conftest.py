"""Configures JAX for all tests: four CPU devices and strict rank promotion.

The settings are environment variables, set before anything imports JAX, because
JAX reads them once and the programs that tests start must inherit them.
"""

import ctypes
import gc
import importlib.metadata
import os
import pathlib
import platform
import resource

os.environ.update(
  JAX_PLATFORMS='cpu',
  # Compiling takes longer than running arrays this small, so LLVM optimises
  # nothing. XLA's own passes stay on. The older emitters of fusions compile
  # three times faster; later versions have only the newer ones, and refuse the
  # flag.
  XLA_FLAGS='--xla_force_host_platform_device_count=4'
  ' --xla_backend_optimization_level=0'
  ' --xla_llvm_disable_expensive_passes=true'
  + (
    ' --xla_cpu_use_fusion_emitters=false'
    ' --xla_cpu_parallel_codegen_split_count=1'
    if importlib.metadata.version('jaxlib').startswith('0.10.')
    else ''
  ),
  # Broadcasting a bias over a batch must be explicit.
  JAX_NUMPY_RANK_PROMOTION='raise',
)

from absl import logging
import jax
import pytest

# Compilation takes most of the tests' time, so compiled programs are cached, in
# a folder for each host, because they fit the CPU that they were compiled on.
# Not for the programs that tests start: one that is killed may leave half an
# entry. JAX_ENABLE_COMPILATION_CACHE=false disables the cache.
cache = pathlib.Path(__file__).parent.parent / '.cache/jax' / platform.node()
jax.config.update('jax_compilation_cache_dir', str(cache))
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


@pytest.fixture(scope='module', autouse=True)
def free_compiled_programs():
  """Keeps a worker below 1.5 GB; all compiled programs would take 4 GB."""
  yield
  _free_above(0.7e9)


@pytest.fixture(autouse=True)
def limit_memory():
  """Does the same within a module that compiles a lot."""
  yield
  _free_above(0.9e9)


def _free_above(limit):
  statm = pathlib.Path('/proc/self/statm')  # In pages; only Linux has it.
  if not statm.exists():
    return
  if int(statm.read_text().split()[1]) * resource.getpagesize() > limit:
    jax.clear_caches()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # glibc would keep the freed memory.


@pytest.fixture(autouse=True)
def restore_verbosity():
  """Undoes what a test does to the verbosity of absl's log."""
  before = logging.get_verbosity()
  yield
  logging.set_verbosity(before)
