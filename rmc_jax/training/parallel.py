"""Placement on devices, the parallel map, reductions and replica checks.

Only `_map_over_devices` calls `jax.pmap`. Functions inside the map communicate
only through `jax.lax` collectives over `AXIS`, so they run unchanged under
`jax.shard_map`; test_parallel.py compares the two bit for bit.

In a job of several processes, each calls the same functions in the same order
with its own part of the batch; `AXIS` spans the devices of all of them, process
by process. A `devices` argument lists devices of the whole job; None means all.
"""

import collections
from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import Any
from typing import TypeAlias

import jax
from jax.experimental import multihost_utils
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


def place_state(state: TrainState, devices: Devices = None) -> TrainState:
  """Places a copy of the state: `carry` sharded by rows, the rest replicated.

  Every leaf gets its own buffer, so the caller's arrays outlive the donation of
  the state. `carry` leaves are [B, ...], B the global batch size.
  """
  return replicate(state._replace(carry=()), devices)._replace(
    carry=shard_rows(state.carry, devices)
  )


def replicate(tree: ArrayTree, devices: Devices = None) -> ArrayTree:
  """Places a copy of every leaf on each local device; no replica axis."""
  return jax.device_put(dealias(tree), _local_sharding(devices))


def shard_rows(tree: ArrayTree, devices: Devices = None) -> ArrayTree:
  """Places this process's rows of [B, ...] leaves, B the global size.

  Returns:
    Leaves [local devices, B / devices, ...], each device holding its own rows.
  """
  if not jax.tree.leaves(tree):
    return tree
  rows = process_rows(num_examples(tree), devices)
  return split_batch(
    jax.tree.map(lambda leaf: jnp.array(leaf[rows], copy=True), tree), devices
  )


def gather_carry(state: TrainState) -> TrainState:
  """Returns the state with `carry` on the host, see `gather_rows`."""
  return state._replace(carry=gather_rows(state.carry))


def gather_rows(tree: ArrayTree) -> ArrayTree:
  """Undoes `shard_rows`: returns [B, ...] NumPy arrays on the host.

  A collective of all processes. Typed keys stay typed.
  """

  def gather(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      data = gather(jax.random.key_data(leaf))
      return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    # [devices, rows, ...], ordered by process.
    rows = multihost_utils.process_allgather(np.asarray(leaf), tiled=True)
    return rows.reshape(-1, *rows.shape[2:])  # [B, ...]

  return jax.tree.map(gather, tree)


def split_batch(batch: ArrayTree, devices: Devices = None) -> ArrayTree:
  """Splits this process's part of a batch over its devices.

  Leaves [B, ...] on the host, B the global batch size / the number of
  processes, become [local devices, B / local devices, ...] on the devices. May
  be called from a prefetching thread.

  Raises:
    ValueError: a batch without examples, leaves that differ in B, or a B that
      does not divide over the local devices.
  """
  sharding = _local_sharding(devices, AXIS)
  shards = sharding.mesh.size
  size = num_examples(batch)
  if size % shards:
    raise ValueError(
      f'A batch of {size} does not divide over the {shards} devices of this '
      f'process. {_nearest_multiples(size, shards)}'
    )

  def split(leaf):
    leaf = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    return leaf.reshape(shards, size // shards, *leaf.shape[1:])

  return jax.device_put(jax.tree.map(split, batch), sharding)


def parallel_update(
  step: Callable[[TrainState, ArrayTree], tuple[TrainState, ArrayTree]],
  devices: Devices = None,
) -> Callable[..., tuple[TrainState, ArrayTree]]:
  """Maps one update, (state, batch) -> (state, metrics), over the devices.

  Each device runs `step` with its rows of `state.carry` and of the batch,
  [B / devices, ...]; the batch may be None. Metrics and the state without
  `carry` must be equal on every device, so whatever depends on the rows needs a
  collective over `AXIS`; see `assert_replicated`.

  Returns:
    `update(state, batch=None) -> (state, metrics)`. `state` comes from
    `place_state` or an earlier update and is donated: its buffers are deleted.
    `batch` comes from `split_batch`. Raises ValueError if they do not.
  """

  def on_device(replicated, carry, batch):
    state, metrics = step(replicated._replace(carry=carry), batch)
    return (state._replace(carry=()), metrics), state.carry

  mapped = _with_checks(on_device, devices, donate=True)

  def update(state, batch=None):
    (replicated, metrics), carry = mapped(
      state._replace(carry=()), state.carry, batch
    )
    return replicated._replace(carry=carry), metrics

  return update


def parallel_map(
  fn: Callable[[ArrayTree, ArrayTree, ArrayTree], tuple[ArrayTree, ArrayTree]],
  devices: Devices = None,
) -> Callable[[ArrayTree, ArrayTree, ArrayTree], tuple[ArrayTree, ArrayTree]]:
  """Maps fn(replicated, carry, batch) -> (sums, carry) over the devices.

  Each device runs `fn` with its rows of `carry` and `batch`; the `sums` of the
  result are over all devices of the job. `replicated` comes from `replicate`,
  `carry` from `shard_rows` or an earlier call, `batch` from `split_batch`;
  nothing is donated.
  """

  def on_device(replicated, carry, batch):
    sums, carry = fn(replicated, carry, batch)
    return psum(sums), carry

  return _with_checks(on_device, devices, donate=False)


def psum(tree: ArrayTree, axis_name: str | None = AXIS) -> ArrayTree:
  """Sums a tree over the devices of the job, inside the map.

  Processes on CPUs reduce one array after another, with a round trip for each,
  so arrays of one dtype are packed into one. XLA combines them on accelerators.
  Without an axis, returns the tree unchanged, as arrays.
  """
  if axis_name is None:
    return jax.tree.map(jnp.asarray, tree)
  if jax.process_count() == 1 or jax.default_backend() != 'cpu':
    return jax.lax.psum(tree, axis_name)
  leaves, structure = jax.tree.flatten(jax.tree.map(jnp.asarray, tree))
  # The sum of bools is a count, as in jax.lax.psum.
  leaves = [x.astype(jnp.int32) if x.dtype == jnp.bool else x for x in leaves]
  for dtype in dict.fromkeys(leaf.dtype for leaf in leaves):
    places = [i for i, leaf in enumerate(leaves) if leaf.dtype == dtype]
    packed, unpack = ravel_pytree([leaves[i] for i in places])
    totals = unpack(jax.lax.psum(packed, axis_name))
    for i, total in zip(places, totals, strict=True):
      leaves[i] = total
  return jax.tree.unflatten(structure, leaves)


def per_device_batch_size(
  global_batch_size: int, devices: Devices = None
) -> int:
  """Returns the number of examples on each device.

  Raises:
    ConfigurationError: the size is not positive or does not divide over the
      devices, or processes have different numbers of devices.
  """
  job = _job_devices(devices)
  counts = [*collections.Counter(d.process_index for d in job).values()]
  if len(set(counts)) != 1:
    raise ConfigurationError(
      f'Every process must have the same number of devices. Got: {counts}.'
    )
  if global_batch_size < 1:
    raise ConfigurationError(
      f'The global batch size must be at least 1. Got: {global_batch_size}.'
    )
  if global_batch_size % len(job):
    raise ConfigurationError(
      f'A global batch of {global_batch_size} does not divide over '
      f'{len(job)} devices (processes x devices of each: {len(counts)} x '
      f'{counts[0]}). {_nearest_multiples(global_batch_size, len(job))}'
    )
  return global_batch_size // len(job)


def process_rows(global_batch_size: int, devices: Devices = None) -> slice:
  """Returns the rows of a global batch that belong to this process."""
  rows = per_device_batch_size(global_batch_size, devices)
  job = _job_devices(devices)
  local = [i for i, device in enumerate(job) if _is_local(device)]
  return slice(local[0] * rows, (local[-1] + 1) * rows)


def num_examples(tree: ArrayTree) -> int:
  """Returns the leading axis that all leaves share.

  Raises:
    ValueError: no leaves, no examples, or leaves that differ.
  """
  shapes = [np.shape(leaf) for leaf in jax.tree.leaves(tree)]
  sizes = {shape[:1] for shape in shapes}
  if len(sizes) != 1 or sizes & {(), (0,)}:
    raise ValueError(
      'All arrays of a batch, carry or split must have the same leading axis '
      f'of at least one example. Got shapes: {shapes}.'
    )
  return sizes.pop()[0]


def check_leading_axis(
  name: str, tree: ArrayTree, size: int, rule: str
) -> None:
  """Raises ValueError, with `rule`, for a leaf that is not [size, ...]."""
  for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
    if np.shape(leaf)[:1] != (size,):
      raise ValueError(
        f'{name}{jax.tree_util.keystr(path)} has shape {np.shape(leaf)}; {rule}'
      )


def assert_replicated(state: ArrayTree, devices: Devices = None) -> None:
  """Raises RuntimeError, naming the leaves, if the replicas differ.

  `carry` of a TrainState is not replicated and not checked. A collective of all
  processes.
  """
  if jax.device_count() == 1:
    return
  if isinstance(state, TrainState):
    state = state._replace(carry=())
  lowest, highest = map(np.asarray, replica_fingerprint(state, devices))
  paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(state)]
  if differing := [
    jax.tree_util.keystr(path)
    for path, low, high in zip(paths, lowest, highest, strict=True)
    if low != high
  ]:
    raise RuntimeError(
      'The devices no longer hold the same state. These leaves differ: '
      f'{", ".join(differing)}. Restart from the last checkpoint. If the error '
      'returns at the same step, a collective is missing from the update; '
      'otherwise suspect a device.'
    )


def replica_fingerprint(
  tree: ArrayTree, devices: Devices = None
) -> tuple[Array, Array]:
  """Returns the extremes over all devices of the sums of every leaf's bits.

  The smallest and the largest sum, uint32 [leaves], are equal if the replicas
  are, and differ for a flipped bit. Reading a replicated array would read one
  device only.
  """
  (lowest, highest), _ = _fingerprint_map(_job_devices(devices))(tree, (), None)
  return lowest, highest


@functools.cache  # Compiled once for all checks.
def _fingerprint_map(devices: tuple[Any, ...]):
  def fingerprint(tree, carry, batch):
    del batch
    sums = jnp.stack([_bit_sum(leaf) for leaf in jax.tree.leaves(tree)])
    return (jax.lax.pmin(sums, AXIS), jax.lax.pmax(sums, AXIS)), carry

  return _with_checks(fingerprint, devices, donate=False)


def _bit_sum(leaf: Array) -> Array:
  if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
    leaf = jax.random.key_data(leaf)
  if leaf.dtype == jnp.bool:
    leaf = leaf.astype(jnp.uint8)
  # 64-bit numbers become two words each.
  word = {1: jnp.uint8, 2: jnp.uint16}.get(leaf.dtype.itemsize, jnp.uint32)
  words = jax.lax.bitcast_convert_type(leaf, word)
  return words.astype(jnp.uint32).sum(dtype=jnp.uint32)


def _with_checks(fn, devices: Devices, donate: bool):
  """Maps fn(replicated, carry, batch) and checks the placement of arguments."""
  # pmap needs a mapped argument even without a batch and a carry.
  sharding = _local_sharding(devices, AXIS)
  index = jax.device_put(np.arange(sharding.mesh.size), sharding)
  mapped = _map_over_devices(
    lambda replicated, carry, batch: fn(replicated, carry[0], batch[0]),
    _job_devices(devices),
    donate,
  )

  def call(replicated, carry, batch):
    _check_replicated(replicated, _local_sharding(devices))
    shards = sharding.mesh.size
    rule = f'its first axis must be the {shards} local devices. Use '
    check_leading_axis('carry', carry, shards, rule + 'place_state(state).')
    check_leading_axis('batch', batch, shards, rule + 'split_batch(batch).')
    return mapped(replicated, (carry,), (batch, index))

  return call


def _map_over_devices(fn, devices: tuple[Any, ...], donate: bool):
  """Maps fn(replicated, (carry,), (batch, index)) -> (replicated, carry).

  test_parallel.py has the equivalent for one process with `jax.shard_map`.
  """
  return jax.pmap(
    fn,
    AXIS,
    # Nested, because pmap (JAX 0.10 to 0.12) takes a flat tuple for one axis
    # per leaf if the arguments have as many leaves.
    in_axes=(None, (0,), (0, 0)),
    out_axes=(None, 0),
    devices=devices,
    donate_argnums=(0, 1) if donate else (),
  )


def _job_devices(devices: Devices) -> tuple[Any, ...]:
  """Returns the devices of the job, sorted by process."""
  chosen = jax.devices() if devices is None else devices
  return tuple(sorted(chosen, key=lambda device: device.process_index))


def _local_sharding(devices: Devices, *axes: str) -> NamedSharding:
  """Returns a sharding over this process's devices that pmap does not copy."""
  local = [device for device in _job_devices(devices) if _is_local(device)]
  # Another axis name than pmap's own would compile everything twice.
  return NamedSharding(Mesh(np.array(local), (AXIS,)), PartitionSpec(*axes))


def _is_local(device: Any) -> bool:
  return device.process_index == jax.process_index()


def _check_replicated(tree: ArrayTree, placed: NamedSharding) -> None:
  for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
    if getattr(leaf, 'sharding', None) != placed:
      raise ValueError(
        f'{jax.tree_util.keystr(path)} is not replicated over the '
        f'{placed.mesh.size} local devices. Call place_state(state) (or '
        'replicate(tree)) once before the first update.'
      )


def _nearest_multiples(size: int, divisor: int) -> str:
  below = size // divisor * divisor
  choices = f'{below} or {below + divisor}' if below else f'{divisor}'
  return f'Take a multiple of {divisor}, such as {choices}.'
