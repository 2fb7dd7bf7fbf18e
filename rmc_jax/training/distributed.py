"""The processes of a job: joining it, leaving it, and who writes the files."""

import hashlib
import os
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import cluster


def initialize(
  coordinator_address: str | None = None,
  process_count: int | None = None,
  process_id: int | None = None,
  *,
  detect: bool = False,
  local_device_ids: list[int] | None = None,
  initialization_timeout: int = 300,
  heartbeat_timeout: int = 100,
  shutdown_timeout: int = 600,
) -> None:
  """Joins the job. Call it before anything else touches a device.

  With none of the first three this is a job of one process and nothing is done,
  unless `detect` finds another. In a job it blocks until all have come. JAX
  then takes over SIGTERM: the process goes on, and
  `multihost_utils.reached_preemption_sync_point` reports the signal.

  Args:
    coordinator_address: host:port of process 0, the same for all.
    process_count: processes in the job.
    process_id: 0 to process_count - 1, each once.
    detect: take what is not given from Slurm, Open MPI, a Cloud TPU or
      Kubernetes, where one of them started this process.
    local_device_ids: the devices of this host that this process uses; None for
      all it can see, in a detected job for its share of them.
    initialization_timeout: seconds to wait for the others; after them JAX
      aborts the process (exit code 134), which cannot be caught.
    heartbeat_timeout: seconds after which a silent process counts as dead. A
      stuck one that is alive is not noticed.
    shutdown_timeout: seconds that `shutdown` waits for the others, of which the
      primary may still have figures to draw.

  Raises:
    ConfigurationError: some of the three but not all, or one out of range.
  """
  timeouts: dict[str, Any] = {
    'initialization_timeout': initialization_timeout,
    'heartbeat_timeout_seconds': heartbeat_timeout,
    'shutdown_timeout_seconds': shutdown_timeout,
  }
  given = {
    'coordinator_address': coordinator_address,
    'process_count': process_count,
    'process_id': process_id,
  }
  missing = [name for name, value in given.items() if value is None]
  # Who is told everything needs no cluster, and may be in one that cannot tell.
  place = cluster.find(os.environ) if detect and missing else None
  if place is not None and process_count is None and process_id is None:
    if local_device_ids is None:
      local_device_ids = cluster.local_devices(place, os.environ)
    if coordinator_address is None and place.method == 'deactivate':
      raise ConfigurationError(
        f'{place.name} does not say where process 0 is. Give '
        '--coordinator_address=HOST:PORT, the same for all processes.'
      )
    jax.distributed.initialize(
      coordinator_address,
      place.process_count,
      place.process_id,
      local_device_ids=local_device_ids,
      cluster_detection_method=place.method,
      **timeouts,
    )
    return
  if len(missing) == len(given):
    return
  if coordinator_address is None or process_count is None or process_id is None:
    raise ConfigurationError(
      f'A job of several processes needs all of {", ".join(given)}; '
      f'{" and ".join(missing)} missing, the others are '
      f'{[value for value in given.values() if value is not None]}. Give all '
      'three, or none for a single process.'
    )
  if process_count < 1:
    raise ConfigurationError(
      f'process_count must be positive, got {process_count}.'
    )
  if not 0 <= process_id < process_count:
    raise ConfigurationError(
      f'process_id must be from 0 to {process_count - 1} in a job of '
      f'{process_count}, got {process_id}.'
    )
  host, _, port = coordinator_address.rpartition(':')
  if not host or not port.isdigit():
    raise ConfigurationError(
      'coordinator_address must be host:port of process 0, such as '
      f'10.0.0.1:9876, got {coordinator_address!r}.'
    )
  jax.distributed.initialize(
    coordinator_address,
    process_count,
    process_id,
    local_device_ids=local_device_ids,
    # Else JAX would look at Slurm and Open MPI for the devices.
    cluster_detection_method='deactivate',
    **timeouts,
  )


def check_same(name: str, text: str) -> None:
  """Refuses processes that were started with different settings.

  Args:
    name: what the text is, for the message.
    text: must be the same in every process; all of them call this.

  Raises:
    ConfigurationError: in all processes, with the numbers of those that differ
      from process 0.
  """
  if jax.process_count() == 1:
    return
  digest = hashlib.sha256(text.encode()).digest()
  seen = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
  if differing := [
    index for index, other in enumerate(seen) if np.any(other != seen[0])
  ]:
    raise ConfigurationError(
      f'The {name} is not the same in all processes of the job: '
      f'{", ".join(map(str, differing))} of {len(seen)} differ from process '
      '0. Start all of them with the same flags and the same code.'
    )


def shutdown() -> None:
  """Leaves the job, after the others have come to the same line.

  If one of them is gone JAX aborts the process (exit code 134): whatever must
  be on disk has to be there before.
  """
  if jax.distributed.is_initialized():
    jax.distributed.shutdown()


def is_primary() -> bool:
  """Whether this is the process that writes metrics and prints progress."""
  return jax.process_index() == 0
