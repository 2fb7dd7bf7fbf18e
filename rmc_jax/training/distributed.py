"""Joins and leaves a job of several processes; compares and sends values."""

from collections.abc import Callable
import hashlib
import os
import pickle
import re
from typing import Any
from typing import cast
from typing import TypeVar

import jax
from jax.experimental import multihost_utils
import numpy as np

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import cluster

# How long `shutdown` waits for the primary process, which may draw figures.
_SHUTDOWN_SECONDS = 600
_BROADCAST_BYTES = 64 * 2**20
_T = TypeVar('_T')


def initialize(
  coordinator_address: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
  *,
  detect: bool = False,
  initialization_timeout: int = 300,
) -> None:
  """Joins the job. Call it before anything else uses a device.

  Does nothing without the first three arguments, unless `detect` finds a job.
  Otherwise blocks until all processes have joined; after
  `initialization_timeout` JAX aborts the process (exit code 134). JAX then
  catches SIGTERM, which `multihost_utils.reached_preemption_sync_point`
  reports. A process without heartbeats for 100 seconds counts as dead; one that
  is stuck has heartbeats.

  Args:
    coordinator_address: host:port of process 0, the same for all.
    num_processes: processes in the job.
    process_id: 0 to num_processes - 1, each once.
    detect: whether to take missing arguments from Slurm, Open MPI, a Cloud TPU
      or Kubernetes, if one of them started this process. Processes of such a
      job share the GPUs of their host.
    initialization_timeout: seconds to wait for the other processes.

  Raises:
    ConfigurationError: some of the first three are missing or out of range.
  """
  given = {
    'coordinator_address': coordinator_address,
    'num_processes': num_processes,
    'process_id': process_id,
  }
  missing = [name for name, value in given.items() if value is None]
  # With all arguments given, the cluster need not be detected.
  place = cluster.find(os.environ) if detect and missing else None
  # Otherwise JAX takes the devices from Slurm or Open MPI.
  local_devices, method = None, 'deactivate'
  if place is not None and num_processes is None and process_id is None:
    if coordinator_address is None and place.method == 'deactivate':
      raise ConfigurationError(
        f'{place.name} does not give the address of process 0. Pass '
        '--coordinator_address=HOST:PORT, the same for all processes.'
      )
    num_processes, process_id = place.process_count, place.process_id
    local_devices = cluster.local_devices(place, os.environ)
    method = place.method
  elif len(missing) == len(given):
    return
  elif (
    coordinator_address is None or num_processes is None or process_id is None
  ):
    raise ConfigurationError(
      f'A job of several processes needs all of {", ".join(given)}; missing: '
      f'{" and ".join(missing)}. Got: '
      f'{[value for value in given.values() if value is not None]}. Pass all '
      'three, or none for a single process.'
    )
  elif not 0 <= process_id < num_processes:  # Or num_processes is below 1.
    raise ConfigurationError(
      f'process_id must be from 0 to {num_processes - 1} in a job of '
      f'{num_processes} processes. Got: {process_id}.'
    )
  elif not re.fullmatch(r'.+:\d+', coordinator_address):
    raise ConfigurationError(
      'coordinator_address must be host:port of process 0, such as '
      f'10.0.0.1:9876. Got: {coordinator_address!r}.'
    )
  jax.distributed.initialize(
    coordinator_address,
    num_processes,
    process_id,
    local_device_ids=local_devices,
    cluster_detection_method=method,
    initialization_timeout=initialization_timeout,
    shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
  )


def check_same(name: str, text: str) -> None:
  """Checks that `text` is the same in all processes; a collective of them.

  Raises:
    ConfigurationError: in all processes, with the `name` of the text, if any
      differs from process 0.
  """
  if jax.process_count() == 1:
    return
  digest = hashlib.sha256(text.encode()).digest()
  seen = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
  if differing := [
    index for index, other in enumerate(seen) if np.any(other != seen[0])
  ]:
    raise ConfigurationError(
      f'The {name} must be the same in all processes of the job; '
      f'{", ".join(map(str, differing))} of {len(seen)} differ from process 0. '
      'Start all of them with the same flags and the same code.'
    )


def from_primary(make: Callable[[], _T]) -> _T:
  """Calls `make` in the primary process; a collective of all processes.

  Returns its result in all of them, or raises its error in all of them, with
  its traceback only in the primary one. Both are pickled.
  """
  result = error = None
  if is_primary():
    try:
      result = make()
    except Exception as raised:
      error = raised
  if jax.process_count() > 1:
    outcome = _broadcast(_pickled(result, error))
    if not is_primary():  # The primary process keeps its error's traceback.
      result, error = pickle.loads(outcome)
  if error is not None:
    raise error
  return cast(_T, result)


def shutdown() -> None:
  """Leaves the job, once all processes call this.

  If one of them is gone, JAX aborts the process (exit code 134), so write all
  files first.
  """
  if jax.distributed.is_initialized():
    jax.distributed.shutdown()


def is_primary() -> bool:
  """Returns whether this process writes files and prints progress."""
  return jax.process_index() == 0


def _broadcast(content: bytes) -> bytes:
  """Returns the content of the primary process in all processes."""
  # JAX may not have 64-bit integers.
  size = np.array(divmod(len(content), 2**30), np.int32)
  high, low = multihost_utils.broadcast_one_to_all(size).tolist()
  total = high * 2**30 + low
  # Of one length, for a single program, and few bytes of device memory.
  length = min(_BROADCAST_BYTES, -(-total // 4) * 4)
  parts = []
  for start in range(0, total, length):
    part = content[start : start + length].ljust(length, b'\0')
    words = np.frombuffer(part, np.uint32)
    words = multihost_utils.broadcast_one_to_all(words)
    parts.append(np.asarray(words).tobytes())
  return b''.join(parts)[:total]


def _pickled(result: Any, error: Exception | None) -> bytes:
  try:
    return pickle.dumps((result, error))
  except Exception:  # The others wait for an answer.
    return pickle.dumps((None, RuntimeError(repr(error or result))))
