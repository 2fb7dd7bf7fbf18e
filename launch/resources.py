"""The machines that a run can ask for by name; plain data."""

from typing import NamedTuple


class Tpu(NamedTuple):
  """A slice of TPUs: hosts that are connected, each with some chips.

  Attributes:
    hosts: each runs one process.
    chips: of a host.
    accelerator_type: what a TPU VM calls it.
    runtime: the image of a TPU VM.
    gke_accelerator: the node label cloud.google.com/gke-tpu-accelerator.
    topology: the node label cloud.google.com/gke-tpu-topology.
  """

  hosts: int
  chips: int
  accelerator_type: str
  runtime: str
  gke_accelerator: str
  topology: str


def _v5e(hosts: int, chips: int, topology: str) -> Tpu:
  return Tpu(
      hosts, chips, f'v5litepod-{hosts * chips}', 'v2-alpha-tpuv5-lite',
      'tpu-v5-lite-podslice', topology,
  )  # fmt: skip


def _v6e(hosts: int, chips: int, topology: str) -> Tpu:
  return Tpu(
      hosts, chips, f'v6e-{hosts * chips}', 'v2-alpha-tpuv6e',
      'tpu-v6e-slice', topology,
  )  # fmt: skip


def _v4(hosts: int, topology: str) -> Tpu:
  # Its names count cores, two in a chip.
  return Tpu(
      hosts, 4, f'v4-{hosts * 8}', 'tpu-ubuntu2204-base',
      'tpu-v4-podslice', topology,
  )  # fmt: skip


def _v5p(hosts: int, topology: str) -> Tpu:
  return Tpu(
      hosts, 4, f'v5p-{hosts * 8}', 'v2-alpha-tpuv5',
      'tpu-v5p-slice', topology,
  )  # fmt: skip


TPUS = {
  'v4-8': _v4(1, '2x2x1'),
  'v4-16': _v4(2, '2x2x2'),
  'v4-32': _v4(4, '2x2x4'),
  'v4-64': _v4(8, '2x4x4'),
  'v4-128': _v4(16, '4x4x4'),
  'v5e-1': _v5e(1, 1, '1x1'),
  'v5e-4': _v5e(1, 4, '2x2'),
  'v5e-8': _v5e(1, 8, '2x4'),
  'v5e-16': _v5e(4, 4, '4x4'),
  'v5e-32': _v5e(8, 4, '4x8'),
  'v5e-64': _v5e(16, 4, '8x8'),
  'v5e-128': _v5e(32, 4, '8x16'),
  'v5e-256': _v5e(64, 4, '16x16'),
  'v5p-8': _v5p(1, '2x2x1'),
  'v5p-16': _v5p(2, '2x2x2'),
  'v5p-32': _v5p(4, '2x2x4'),
  'v5p-64': _v5p(8, '2x4x4'),
  'v5p-128': _v5p(16, '4x4x4'),
  'v6e-1': _v6e(1, 1, '1x1'),
  'v6e-4': _v6e(1, 4, '2x2'),
  'v6e-8': _v6e(1, 8, '2x4'),
  'v6e-16': _v6e(4, 4, '4x4'),
  'v6e-32': _v6e(8, 4, '4x8'),
  'v6e-64': _v6e(16, 4, '8x8'),
  'v6e-128': _v6e(32, 4, '8x16'),
  'v6e-256': _v6e(64, 4, '16x16'),
}
