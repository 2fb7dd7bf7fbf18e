"""The devices: placing, splitting, mapping, adding up, checking the replicas.

This is the only file that says `jax.pmap`, and `_replicated_map` the only
function. Everything mapped has one shape: a replicated tree and this device's
share in, a replicated tree out. What runs inside speaks of the devices only
through `jax.lax` collectives over `AXIS`, so it would run unchanged under
`jax.jit(jax.shard_map(...))`; see `_replicated_map`.

Several processes: each calls the same functions in the same order, with its own
share of the batch; `AXIS` spans the devices of all of them, process by process.
A `devices` argument lists devices of the whole job, None being all of them.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import Any
from typing import TypeAlias

import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from rmc_jax.errors import ConfigurationError
from rmc_jax.training.state import dealias
from rmc_jax.training.state import TrainState
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

AXIS = 'devices'
Devices: TypeAlias = Sequence[Any] | None  # of jax.Device


def place_state(state: ArrayTree, devices: Devices = None) -> ArrayTree:
  """Puts a copy of the state on every local device, once, before training.

  Takes any tree, of NumPy or JAX arrays, placed or not: a fresh state and one
  just restored alike. Every leaf gets a buffer of its own, so the caller's
  arrays outlive the donation of the state.

  Returns:
    The tree with every leaf replicated over this process's devices. It reads
    like a tree of ordinary arrays: there is no replica axis to index.
  """
  return jax.device_put(dealias(state), _local_sharding(devices))


def split_batch(batch: ArrayTree, devices: Devices = None) -> ArrayTree:
  """Cuts this process's part of a batch into one share a device, and places it.

  Args:
    batch: leaves [B, ...] on the host, B the same for all: the examples of this
      process, global batch size / number of processes of them.
    devices: as everywhere in this file.

  Returns:
    Leaves [local devices, B / local devices, ...], on the devices. May be
    called ahead of time, from a prefetching thread.

  Raises:
    ValueError: a batch without arrays, leaves that differ in B, or a B that
      does not divide over the local devices; with the numbers.
  """
  sharding = _local_sharding(devices, AXIS)
  shares = sharding.mesh.size
  sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(batch)}
  if len(sizes) != 1 or () in sizes:
    raise ValueError(
      'All arrays of a batch need the same leading axis, the examples; got '
      f'the shapes {[np.shape(leaf) for leaf in jax.tree.leaves(batch)]}.'
    )
  (size,) = sizes.pop()
  if size % shares:
    raise ValueError(
      f'A batch of {size} does not divide over the {shares} devices of this '
      f'process. {_nearest_multiples(size, shares)}'
    )
  return jax.device_put(
    jax.tree.map(
      lambda leaf: np.reshape(
        leaf, (shares, size // shares, *np.shape(leaf)[1:])
      ),
      batch,
    ),
    sharding,
  )


def parallel_update(
  step: Callable[[TrainState, ArrayTree], tuple[TrainState, ArrayTree]],
  devices: Devices = None,
) -> Callable[..., tuple[TrainState, ArrayTree]]:
  """Maps one update over the devices.

  Args:
    step: (state, batch) -> (state, metrics), run on each device with its share
      of the batch, [B / devices, ...], or None where it makes its own data.
      Both results must come out the same on every device, so all that depends
      on the batch goes through a collective over `AXIS`. Nothing checks this
      but `assert_replicated`.
    devices: as everywhere in this file.

  Returns:
    `update(state, batch=None) -> (state, metrics)`, where `state` comes from
    `place_state` or an earlier update and is DONATED: its buffers are gone
    afterwards. `batch` comes from `split_batch`. Raises ValueError for a state
    or batch that does not.
  """
  mapped = _replicated_map(
    lambda state, share: step(state, share['batch']), devices, donate=True
  )
  placed = _local_sharding(devices)
  indices = _device_indices(devices)

  def update(state, batch=None):
    _check_placed(state, placed)
    _check_split(batch, placed.mesh.size)
    return mapped(state, {'batch': batch, 'index': indices})

  return update


def parallel_sum(
  fn: Callable[[ArrayTree, ArrayTree], ArrayTree], devices: Devices = None
) -> Callable[[ArrayTree, ArrayTree], ArrayTree]:
  """Maps `fn(replicated, share)` over the devices and adds up what it returns.

  Returns:
    `total(replicated, batch)`: the sums over all devices of the job.
    `replicated` comes from `place_state` or an update and is not donated;
    `batch` comes from `split_batch`. Raises ValueError where they do not.
  """
  mapped = _replicated_map(
    lambda replicated, share: psum(fn(replicated, share)),
    devices,
    donate=False,
  )
  placed = _local_sharding(devices)

  def total(replicated, batch):
    _check_placed(replicated, placed)
    _check_split(batch, placed.mesh.size)
    return mapped(replicated, batch)

  return total


def psum(tree: ArrayTree) -> ArrayTree:
  """Adds up a tree over the devices of the job; for inside a mapping.

  Processes on CPUs exchange array after array, each at the price of a round
  trip, so there all arrays of one dtype go as one. XLA does so by itself for
  accelerators, and within a process there is nothing to gain.
  """
  if jax.process_count() == 1 or jax.default_backend() != 'cpu':
    return jax.lax.psum(tree, AXIS)
  leaves, structure = jax.tree.flatten(jax.tree.map(jnp.asarray, tree))
  # The sum of bools is a count, as jax.lax.psum has it.
  leaves = [x.astype(jnp.int32) if x.dtype == jnp.bool else x for x in leaves]
  for dtype in dict.fromkeys(leaf.dtype for leaf in leaves):
    places = [i for i, leaf in enumerate(leaves) if leaf.dtype == dtype]
    packed, unpack = ravel_pytree([leaves[i] for i in places])
    totals = unpack(jax.lax.psum(packed, AXIS))
    for i, total in zip(places, totals, strict=True):
      leaves[i] = total
  return jax.tree.unflatten(structure, leaves)


def own_rows(tree: ArrayTree, num_rows: int) -> ArrayTree:
  """This device's rows of [B, ...] arrays that all have; inside a mapping."""
  first = jax.lax.axis_index(AXIS) * num_rows
  return jax.tree.map(
    lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, num_rows), tree
  )


def all_rows(tree: ArrayTree) -> ArrayTree:
  """Undoes `own_rows`, with what each device has now; inside a mapping."""
  return jax.tree.map(
    lambda leaf: jax.lax.all_gather(leaf, AXIS, tiled=True), tree
  )


def per_device_batch_size(
  global_batch_size: int, devices: Devices = None
) -> int:
  """The examples each device takes; refuses what does not divide.

  Raises:
    ConfigurationError: a size that is not positive, processes with different
      numbers of devices, or a size that does not divide; with both numbers.
  """
  job = _job_devices(devices)
  counts = [
    sum(device.process_index == process for device in job)
    for process in sorted({device.process_index for device in job})
  ]
  if len(set(counts)) != 1:
    raise ConfigurationError(
      f'Every process needs the same number of devices; they have {counts}.'
    )
  if global_batch_size < 1:
    raise ConfigurationError(
      f'The global batch size must be positive, got {global_batch_size}.'
    )
  if global_batch_size % len(job):
    raise ConfigurationError(
      f'A global batch of {global_batch_size} does not divide over '
      f'{len(job)} devices (processes x devices of each: {len(counts)} x '
      f'{counts[0]}). {_nearest_multiples(global_batch_size, len(job))}'
    )
  return global_batch_size // len(job)


def process_rows(global_batch_size: int, devices: Devices = None) -> slice:
  """The rows of a global batch that this process feeds, as a slice."""
  rows = per_device_batch_size(global_batch_size, devices)
  job = _job_devices(devices)
  local = [i for i, device in enumerate(job) if _is_local(device)]
  return slice(local[0] * rows, (local[-1] + 1) * rows)


def replica_fingerprint(
  state: ArrayTree, devices: Devices = None
) -> tuple[Array, Array]:
  """Sums the bits of every leaf on each device.

  A replicated array is read from one device, so a replica that has come apart
  (a flipped bit, a missing collective) shows nowhere else.

  Returns:
    The smallest and the largest sum over all devices of the job, two uint32
    [leaves]. They are equal where the replicas are; one different bit makes
    them differ.
  """
  _check_placed(state, _local_sharding(devices))
  return _fingerprint_map(_job_devices(devices))(
    state, _device_indices(devices)
  )


def assert_replicated(state: ArrayTree, devices: Devices = None) -> None:
  """Raises RuntimeError, naming the leaves, if the replicas are not identical.

  Every process must call it at the same step; all come to the same verdict.
  """
  lowest, highest = map(np.asarray, replica_fingerprint(state, devices))
  paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(state)]
  if differing := [
    jax.tree_util.keystr(path)
    for path, low, high in zip(paths, lowest, highest, strict=True)
    if low != high
  ]:
    raise RuntimeError(
      'The devices no longer hold the same state. These leaves differ: '
      f'{", ".join(differing)}. Go back to the last checkpoint; if it comes '
      'again at the same step, a collective is missing from the update, '
      'otherwise suspect a device.'
    )


def _replicated_map(
  fn: Callable[[Any, Any], Any], devices: Devices, donate: bool
) -> Callable[[Any, Any], Any]:
  """Runs fn(replicated, this device's share) -> replicated on all devices.

  On one process the same thing without pmap is
  `jit(shard_map(f, mesh=mesh, in_specs=(P(), P(AXIS)), out_specs=P(),
  check_vma=False), donate_argnums=(0,))`, f first dropping the unit axis of its
  share; on several, `_local_sharding`, `split_batch` and `place_state` would
  make arrays over the devices of all processes. Nothing outside this file would
  change.
  """
  return jax.pmap(
    fn,
    AXIS,
    in_axes=(None, 0),
    out_axes=None,
    devices=_job_devices(devices),
    donate_argnums=(0,) if donate else (),
  )


@functools.cache  # One compilation, however often the replicas are checked.
def _fingerprint_map(devices: tuple[Any, ...]):
  def fingerprint(state, share):
    del share  # pmap insists on a mapped argument.
    sums = jnp.stack(
      [_bit_sum(leaf) for leaf in jax.tree.leaves(state)]
    )  # [leaves]
    return jax.lax.pmin(sums, AXIS), jax.lax.pmax(sums, AXIS)

  return _replicated_map(fingerprint, devices, donate=False)


def _bit_sum(leaf: Array) -> Array:
  if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
    leaf = jax.random.key_data(leaf)
  if leaf.dtype == jnp.bool:
    leaf = leaf.astype(jnp.uint8)
  # 64-bit numbers become two words each, narrow ones keep their few bits.
  word = {1: jnp.uint8, 2: jnp.uint16}.get(leaf.dtype.itemsize, jnp.uint32)
  words = jax.lax.bitcast_convert_type(leaf, word)
  return words.astype(jnp.uint32).sum(dtype=jnp.uint32)


def _job_devices(devices: Devices) -> tuple[Any, ...]:
  """The devices of the job, those of one process side by side."""
  chosen = jax.devices() if devices is None else devices
  return tuple(sorted(chosen, key=lambda device: device.process_index))


def _local_sharding(devices: Devices, *axes: str) -> NamedSharding:
  """Over this process's devices only: what pmap takes without a copy."""
  local = [device for device in _job_devices(devices) if _is_local(device)]
  return NamedSharding(Mesh(np.array(local), (AXIS,)), PartitionSpec(*axes))


def _is_local(device: Any) -> bool:
  return device.process_index == jax.process_index()


def _device_indices(devices: Devices) -> Array:
  """[local devices], for functions that take no batch: pmap wants one."""
  sharding = _local_sharding(devices, AXIS)
  return jax.device_put(np.arange(sharding.mesh.size), sharding)


def _check_placed(state: ArrayTree, placed: NamedSharding) -> None:
  for path, leaf in jax.tree_util.tree_leaves_with_path(state):
    if getattr(leaf, 'sharding', None) != placed:
      raise ValueError(
        f'{jax.tree_util.keystr(path)} is not replicated over the '
        f'{placed.mesh.size} local devices in use. Pass the state through '
        'place_state(state) once before the first call.'
      )


def _check_split(batch: ArrayTree, shares: int) -> None:
  for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
    if np.shape(leaf)[:1] != (shares,):
      raise ValueError(
        f'The batch array {jax.tree_util.keystr(path)} of shape '
        f'{np.shape(leaf)} does not have {shares} shares, one a local device,'
        ' on its first axis. Pass the batch through split_batch(batch).'
      )


def _nearest_multiples(size: int, divisor: int) -> str:
  below = size // divisor * divisor
  choices = f'{below} or {below + divisor}' if below else f'{divisor}'
  return f'Take a multiple of {divisor}, such as {choices}.'
