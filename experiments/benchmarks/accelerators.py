"""Published figures of accelerators and the links between them.

docs/scaling.md describes their use.
"""

import math
from typing import NamedTuple

# Assumed, not measured: the share of a published rate that large products, the
# memory and the links reach.
PRODUCT_SHARE, MEMORY_SHARE, LINK_SHARE = 0.5, 0.8, 0.8


class Accelerator(NamedTuple):
  """A kind of device and its links, with published figures per second."""

  # Operations of float32 products at JAX's default precision: one bfloat16 pass
  # on a TPU, TF32 on a GPU.
  product: float
  memory: float  # bytes, between a device and its memory
  group: int  # devices that the fast links join
  inner: float  # bytes, from one device into the fast links
  closed: int  # fewer devices form no rings; their links carry half
  outer: float  # bytes, from one device to other groups
  axes: int  # of the torus; 0 is a switch
  inner_hop: float  # seconds, from a device to the next
  outer_hop: float  # seconds, from a group to the next
  host: float  # bytes, from the host to one device
  per_host: int  # devices of one process
  # Least seconds of a step of a loop. Assumed: the chain of products of a step
  # on a TPU, some thirty kernels on a GPU.
  step: float
  source: str  # of the figures


_TPU = (
  'products, memory and pod: cloud.google.com/tpu/docs/{}; links, host and '
  'data-centre network: "How to Scale Your Model", TPU specs; hops: assumed'
)
_GPU = (
  'products (dense), memory and NVLink (half of both directions): NVIDIA {} '
  'data sheet, SXM, 80 GB; network: NVIDIA {} user guide, an adapter a GPU; '
  'host: PCIe {} x16; hops: NCCL, src/graph/tuning.cc, tree, LL128'
)
ACCELERATORS = {
  'TPU v5e': Accelerator(
    197e12, 819e9, 256, 4 * 45e9, 256, 3.125e9, 2, 1e-6, 1e-5, 16e9, 8, 2e-5,
    _TPU.format('v5e'),
  ),
  'TPU v4': Accelerator(
    275e12, 1200e9, 4096, 6 * 45e9, 64, 6.25e9, 3, 1e-6, 1e-5, 16e9, 4, 2e-5,
    _TPU.format('v4'),
  ),
  'H100': Accelerator(
    494.7e12, 3350e9, 8, 450e9, 1, 50e9, 0, 1.25e-6, 8.5e-6, 64e9, 8, 1e-4,
    _GPU.format('H100', 'DGX H100', '5'),
  ),
  'A100': Accelerator(
    156e12, 2039e9, 8, 300e9, 1, 25e9, 0, 1.25e-6, 8.5e-6, 32e9, 8, 1e-4,
    _GPU.format('A100', 'DGX A100', '4'),
  ),
}  # fmt: skip


def all_reduce(kind: Accelerator, devices: int, size: int) -> float:
  """Returns the seconds of an all-reduce of `size` bytes.

  A reduce-scatter in each group, an all-reduce of the parts across groups, and
  an all-gather in each group.
  """
  inner = min(devices, kind.group)
  outer = math.ceil(devices / kind.group)
  link = LINK_SHARE * kind.inner * (1.0 if devices >= kind.closed else 0.5)
  hops = math.log2(inner)
  if kind.axes:
    hops = kind.axes * (inner ** (1 / kind.axes) - 1)
  return 2 * (
    (inner - 1) / inner * size / link
    + hops * kind.inner_hop
    + (outer - 1) / outer * size / inner / (LINK_SHARE * kind.outer)
    + math.log2(outer) * kind.outer_hop
  )
