"""Who can take part in `unroll`, and what each needs to run."""

import os
import pathlib
import sys
from typing import NamedTuple

from experiments.benchmarks.machine import CHECKOUT
from rmc_jax.parity import reference


class Contestant(NamedTuple):
  """One implementation.

  Attributes:
    worker: its program among the workers: jax, torch or sonnet.
    variants: ways to run it; the one with the faster training step counts.
    cpu_variants: further ones on a CPU.
    gpu_variants: further ones on a GPU.
    compared: whether it is a relational memory, which must agree with others.
    gpu: whether its environment can use one.
    precisions: what it can compute in.
  """

  worker: str
  variants: tuple[str, ...] = ('',)
  cpu_variants: tuple[str, ...] = ()
  gpu_variants: tuple[str, ...] = ()
  compared: bool = True
  gpu: bool = True
  precisions: tuple[str, ...] = ('float32', 'tf32', 'bfloat16')


# Has glibc ask the kernel for large pages, as launch/train.sh does. JAX takes
# the memory of a step anew in each call: in small pages a fifth of some steps.
LARGE_PAGES = 'glibc.malloc.hugetlb=1'

# Under pmap, which divides the batch among as many devices as there are cores.
PER_CORE = 'a device per core'

CONTESTANTS = {
  'rmc_jax': Contestant('jax', cpu_variants=(PER_CORE,)),
  'rmc_jax_remat': Contestant('jax', cpu_variants=(PER_CORE,)),
  # Our core in Haiku's unroll, which does everything at every step.
  'dynamic_unroll': Contestant('jax', cpu_variants=(PER_CORE,)),
  'sonnet': Contestant(
    'sonnet', variants=('steps', 'loop'), gpu=False, precisions=('float32',)
  ),
  'torch_eager': Contestant('torch'),
  'torch_compile': Contestant(
    'torch',
    variants=('step', 'unroll'),
    gpu_variants=('unroll, CUDA graphs',),
  ),
  # As large a state; another function.
  'hk_lstm': Contestant('jax', cpu_variants=(PER_CORE,), compared=False),
  'torch_lstm': Contestant('torch', compared=False),
}


def obstacle(name: str, device: str, precision: str) -> str | None:
  """Why a contestant cannot take part here, and what to do; None if it can."""
  contestant = CONTESTANTS[name]
  if device == 'gpu' and not contestant.gpu:
    return 'runs on a CPU only'
  if precision not in contestant.precisions:
    return f'runs in {" and ".join(contestant.precisions)} only'
  if not os.path.exists(command(name)[0]):
    return 'not installed: run launch/benchmark.sh unroll'
  return None


def command(name: str) -> list[str]:
  """How to start a contestant, in its own environment."""
  framework = CONTESTANTS[name].worker
  return program(framework, f'{framework}_worker')


def program(framework: str, worker: str) -> list[str]:
  """How to start a worker in the environment of jax, torch or sonnet."""
  environments = {
    'jax': sys.executable,
    'sonnet': reference.home() / 'reference/bin/python',
    'torch': home() / 'torch/bin/python',
  }
  module = f'experiments.benchmarks.workers.{worker}'
  return [str(environments[framework]), '-m', module]


def home() -> pathlib.Path:
  """Where launch/benchmark.sh puts PyTorch: RMC_BENCHMARK_HOME, .benchmark."""
  return pathlib.Path(
    os.environ.get('RMC_BENCHMARK_HOME', CHECKOUT / '.benchmark')
  )


def environment(device: str, folder: str | os.PathLike) -> dict[str, str]:
  """The environment variables of every worker.

  Args:
    device: 'cpu' or 'gpu'.
    folder: for what a compiler keeps; nothing outlives the contest.
  """
  return {
    **os.environ,
    'PYTHONPATH': str(CHECKOUT),
    'JAX_PLATFORMS': 'cuda' if device == 'gpu' else 'cpu',
    # Build times are of builds, not of what an earlier one left.
    'JAX_ENABLE_COMPILATION_CACHE': 'false',
    'TORCHINDUCTOR_CACHE_DIR': os.path.join(folder, 'inductor'),
    'TORCHINDUCTOR_FORCE_DISABLE_CACHES': '1',
    # Several contestants share one GPU.
    'XLA_PYTHON_CLIENT_PREALLOCATE': 'false',
    # Of OpenMP libraries that would let idle threads spin for longer.
    'KMP_BLOCKTIME': '1',
    'GLIBC_TUNABLES': os.environ.get('GLIBC_TUNABLES', LARGE_PAGES),
  }
