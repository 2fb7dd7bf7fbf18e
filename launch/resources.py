"""The TPU slices that launchers can request by name."""

import math
from typing import NamedTuple


class Tpu(NamedTuple):
  """A TPU slice: connected hosts of a few chips each, one process per host."""

  hosts: int
  chips: int  # of a host
  accelerator_type: str  # its name for TPU VMs
  runtime: str | None  # system image of TPU VMs; None: only on GKE
  gke_accelerator: str  # node label cloud.google.com/gke-tpu-accelerator
  topology: str  # node label cloud.google.com/gke-tpu-topology


# From cloud.google.com/tpu/docs/runtimes and, for GKE,
# cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus.
# Names of slices with cubes count cores, two for each chip; others count chips.
_CUBES = ('2x2x1', '2x2x2', '2x2x4', '2x4x4', '4x4x4')
_SQUARES = ('1x1', '2x2', '2x4', '4x4', '4x8', '8x8', '8x16', '16x16')
# Generation: accelerator type, runtime, GKE accelerator, topologies.
_GENERATIONS = {
  'v4': ('v4', 'tpu-ubuntu2204-base', 'tpu-v4-podslice', _CUBES),
  'v5e': ('v5litepod', 'v2-alpha-tpuv5-lite', 'tpu-v5-lite-podslice', _SQUARES),
  'v5p': ('v5p', 'v2-alpha-tpuv5', 'tpu-v5p-slice', _CUBES),
  'v6e': ('v6e', 'v2-alpha-tpuv6e', 'tpu-v6e-slice', _SQUARES),
  'v7x': ('tpu7x', None, 'tpu7x', _CUBES),  # Ironwood
}


def _slices() -> dict[str, Tpu]:
  slices = {}
  for generation, (kind, runtime, gke, topologies) in _GENERATIONS.items():
    for topology in topologies:
      total = math.prod(map(int, topology.split('x')))
      chips = 8 if topology == '2x4' else min(total, 4)  # 2x4 is one host.
      size = total if topologies is _SQUARES else 2 * total
      slices[f'{generation}-{size}'] = Tpu(
        total // chips, chips, f'{kind}-{size}', runtime, gke, topology
      )
  return slices


TPUS = _slices()
