"""Verified checkpoints, saved by Orbax in the background.

A manifest (`manifest.py`) is the last file of a step. A step is restored only
if every file and array matches its manifest. Otherwise it is moved to
`quarantined/`, next to a file with the reason, and the next older one is used.

Checkpoints hold host arrays under readable paths such as
`params/relational_memory/input/w`, so they fit any number of devices. In a job
of several processes only the primary one reads, writes and computes digests;
the others receive the restored state from it.
"""

from collections.abc import Callable
import os
import pathlib
import re
import shutil
from typing import Any
from typing import NamedTuple

from absl import logging
import jax
import numpy as np
import orbax.checkpoint as ocp

from rmc_jax.checks import positive_int
from rmc_jax.errors import ConfigurationError
from rmc_jax.training import distributed
from rmc_jax.training import manifest
from rmc_jax.types import ArrayTree

_QUARANTINE = 'quarantined'
_MOST_DIFFERENCES = 12


class SaveFailed(RuntimeError):
  """A save in the background failed; earlier checkpoints are complete."""


class NoGoodCheckpoint(ConfigurationError):
  """There are checkpoints, and all of them are damaged."""


class StructureMismatch(ConfigurationError):
  """The newest good checkpoint is of another model or optimiser."""


class Restored(NamedTuple):
  """A checkpoint: its step, the state and what `save` got as `extra`."""

  step: int
  state: Any
  extra: Any


def check_directory(directory: str | os.PathLike) -> None:
  """Raises ConfigurationError for a path with one of the characters *?[ in it.

  Orbax takes them for a pattern, and then saves checkpoints without arrays.
  """
  if found := re.search(r'[*?[]', str(directory)):
    raise ConfigurationError(
      f'The path of a workdir must not contain {found[0]!r}, with which '
      f'checkpoints cannot be saved. Got: {str(directory)!r}.'
    )


class Checkpointer:
  """Saves states and restores the newest good one.

  Args:
    directory: created if missing, unless `read_only`. Incomplete saves in it
      are removed before the next save.
    keep: number of steps, and of quarantined ones. An old one is removed only
      after a newer one is complete.
    read_only: change nothing, to read the checkpoints of a run in progress.
    on_complete: called after each save that is complete, in the primary
      process.

  Raises:
    ConfigurationError: see `check_directory`.
  """

  def __init__(
    self,
    directory: str | pathlib.Path,
    *,
    keep: int = 3,
    read_only: bool = False,
    on_complete: Callable[[], None] = lambda: None,
  ):
    self._directory = pathlib.Path(directory).absolute()
    check_directory(self._directory)
    self._keep = positive_int('keep', keep)
    self._read_only = read_only
    self._on_complete = on_complete
    self._manager = _manager(self._directory, read_only)
    self._steps = sorted(self._manager.all_steps()) if self._manager else []
    self._has_saved = False
    # The step being saved, and what its manifest will hold.
    self._pending: tuple[int, dict[str, dict[str, str]], Any] | None = None

  def save(self, step: int, state: ArrayTree, extra: Any = None) -> None:
    """Copies `state` to the host and starts to write it in the background.

    Waits for the previous save first. The buffers of `state` may be donated as
    soon as this returns. A step that exists is not saved again. `extra` is
    anything JSON can hold.

    Raises:
      SaveFailed: the save before this one failed.
    """
    self.wait()
    if self._manager is None or step in self._steps:
      return
    leaves = _to_host(state)
    started = self._manager.save(
      step, args=ocp.args.StandardSave(_storable(leaves)), force=True
    )
    if not started:
      raise SaveFailed(f'Orbax did not accept step {step}.')
    self._pending = step, _describe(state, leaves), extra

  def poll(self) -> None:
    """Completes a save that has finished; SaveFailed if it failed."""
    if self._pending and not self._manager.is_saving_in_progress():
      self._complete()

  def wait(self) -> None:
    """Completes the current save, like `poll`, and removes old steps."""
    self._complete()
    # Not before a restore, which may find that the newest one is damaged.
    while self._has_saved and len(self._steps) > self._keep:
      oldest = self._steps.pop(0)
      # First, so that a step with a manifest has all of its files.
      (self._step_directory(oldest) / manifest.FILE_NAME).unlink(
        missing_ok=True
      )
      self._manager.delete(oldest)

  def restore(self, target: ArrayTree) -> Restored | None:
    """Restores the newest complete step; a collective of all processes.

    Args:
      target: the expected structure, such as `jax.eval_shape(init)`.

    Returns:
      The checkpoint, whose state is a tree like `target` of host arrays and
      PRNG keys. None if nothing is saved.

    Raises:
      NoGoodCheckpoint: all checkpoints are damaged.
      StructureMismatch: the newest good step does not fit `target`.
    """
    self.wait()
    found = distributed.from_primary(lambda: self._read_newest(target))
    if found is None:
      return None
    filled = [_as_saved(*found.state[path]) for path in _by_path(target)]
    state = jax.tree.unflatten(jax.tree.structure(target), filled)
    return found._replace(state=state)

  def close(self) -> None:
    """Waits for the current save and stops Orbax's threads."""
    self.wait()
    if self._manager:
      self._manager.close()

  def __enter__(self) -> 'Checkpointer':
    return self

  def __exit__(self, kind, error, traceback) -> None:
    # After an error in a job, a peer may be gone, and waiting would never end.
    if error is None or jax.process_count() == 1:
      self.close()

  def _complete(self) -> None:
    """Waits for Orbax to commit the step, then writes its manifest."""
    if self._pending is None:
      return
    step, leaves, extra = self._pending
    self._pending = None
    try:
      self._manager.wait_until_finished()
      self._manager.check_for_errors()
      manifest.write(self._step_directory(step), step, leaves, extra)
    except Exception as error:
      newest = f'step {self._steps[-1]}' if self._steps else 'none'
      raise SaveFailed(
        f'Saving step {step} in {self._directory} failed: {error}. Is the '
        f'disk full? The newest complete checkpoint: {newest}.'
      ) from error
    self._steps.append(step)
    self._has_saved = True
    self._on_complete()

  def _read_newest(self, target: ArrayTree) -> Restored | None:
    """Like `restore`, in the primary process alone; see `_read`."""
    bad: dict[int, manifest.Damaged] = {}
    for step in reversed(self._steps):
      try:
        restored = self._read(step, target)
      except manifest.Damaged as damage:
        bad[step] = damage
        continue
      self._quarantine(bad)
      return restored
    if not bad:
      return None
    # The first save did not finish, so there is no progress to lose.
    if [type(damage) for damage in bad.values()] == [manifest.Incomplete]:
      self._quarantine(bad)
      return None
    raise NoGoodCheckpoint(
      f'All checkpoints in {self._directory} are damaged: '
      + '; '.join(f'step {step}: {damage}' for step, damage in bad.items())
      + '. Nothing was removed. Restore a copy, or start again in another '
      '--workdir.'
    )

  def _read(self, step: int, target: ArrayTree) -> Restored:
    """Reads a step; its state is path -> array and implementation of a key."""
    directory = self._step_directory(step)
    record = manifest.verify(directory)
    _check_fit(record, target, directory)
    empty = {
      path: np.zeros(leaf.shape, leaf.dtype)
      for path, leaf in jax.eval_shape(_without_keys, target).items()
    }
    stored = self._manager.restore(
      step, args=ocp.args.StandardRestore(_storable(empty))
    )
    leaves = {**empty, **stored}
    _check_digests(record, leaves)
    _warn_of_drift(record, directory)
    keys = {
      path: leaf.get('key_impl') for path, leaf in record['leaves'].items()
    }
    state = {path: (leaves[path], keys[path]) for path in keys}
    return Restored(step, state, record.get('extra'))

  def _quarantine(self, bad: dict[int, manifest.Damaged]) -> None:
    """Moves damaged steps to `quarantined/`, with a file for each reason."""
    if self._read_only or not bad:
      return
    place = self._directory / _QUARANTINE
    place.mkdir(exist_ok=True)
    for step, damage in bad.items():
      self._steps.remove(step)
      name = str(step)
      while (place / name).exists():
        name += '_again'
      self._step_directory(step).rename(place / name)
      (place / f'{name}.txt').write_text(f'{damage}\n')
      logging.warning(
        'The checkpoint of step %d is damaged (%s). It was moved to %s.',
        step,
        damage,
        place / name,
      )
    for earlier in _by_step(place)[: -max(self._keep, len(bad))]:
      shutil.rmtree(earlier)
      earlier.with_suffix('.txt').unlink(missing_ok=True)
    self._manager.reload()

  def _step_directory(self, step: int) -> pathlib.Path:
    return self._directory / str(step)


class _Manager(ocp.CheckpointManager):
  """Orbax's manager, without its own check for preemption."""

  def reached_preemption(self, step: int) -> bool:
    # Orbax would query JAX from a thread and with its own step numbers, so the
    # processes would no longer agree on the call at which to stop.
    del step
    return False


def _manager(directory: pathlib.Path, read_only: bool) -> Any:
  """Returns Orbax's manager for the primary process; None in the others."""
  if not distributed.is_primary():
    return None
  options = ocp.CheckpointManagerOptions(
    cleanup_tmp_directories=not read_only, read_only=read_only
  )
  if jax.process_count() > 1:
    options.multiprocessing_options = ocp.options.MultiprocessingOptions(
      active_processes={0}, barrier_sync_key_prefix='primary'
    )
    options.create = False  # Orbax refuses it with active_processes.
    if not read_only:
      directory.mkdir(parents=True, exist_ok=True)
  return _Manager(directory, options=options)


def _by_step(quarantine: pathlib.Path) -> list[pathlib.Path]:
  """Returns the quarantined checkpoints in the order of their steps."""
  folders = [path for path in quarantine.iterdir() if path.is_dir()]
  return sorted(folders, key=lambda path: int(path.name.partition('_')[0]))


def _to_host(state: ArrayTree) -> dict[str, np.ndarray]:
  """Copies every leaf to the host, keys as their data."""
  # On the CPU, device_get may return a view of a buffer that the next update
  # donates.
  return jax.tree.map(np.array, jax.device_get(_without_keys(state)))


def _storable(leaves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Drops zero-size arrays, which Orbax refuses."""
  return {path: leaf for path, leaf in leaves.items() if leaf.size}


def _by_path(tree: ArrayTree) -> dict[str, Any]:
  """Returns readable path -> leaf, in the order of the tree."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  by_path = {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf
    for path, leaf in leaves
  }
  if len(by_path) != len(leaves):
    raise ValueError(f'Two arrays of the state share a path: {list(by_path)}.')
  return by_path


def _without_keys(tree: ArrayTree) -> dict[str, Any]:
  return {
    path: jax.random.key_data(leaf) if _is_key(leaf) else leaf
    for path, leaf in _by_path(tree).items()
  }


def _describe(
  state: ArrayTree, on_host: dict[str, np.ndarray]
) -> dict[str, dict[str, str]]:
  """Returns path -> the manifest's entry."""
  described = {}
  for path, leaf in _by_path(state).items():
    digest = manifest.digest_of_array(on_host[path])
    described[path] = {'layout': _layout(leaf), 'digest': digest}
    if _is_key(leaf):
      described[path]['key_impl'] = str(jax.random.key_impl(leaf))
  return described


def _check_fit(
  record: dict[str, Any], target: ArrayTree, directory: pathlib.Path
) -> None:
  """Raises StructureMismatch with the differences, if there are any."""
  saved = {path: leaf['layout'] for path, leaf in record['leaves'].items()}
  wanted = {path: _layout(leaf) for path, leaf in _by_path(target).items()}
  lines = []
  for path in sorted(saved.keys() | wanted.keys()):
    old, new = saved.get(path), wanted.get(path)
    if new is None:
      lines.append(f'{path}: {old} only in the checkpoint')
    elif old is None:
      lines.append(f'{path}: {new} only in this program')
    elif old != new:
      lines.append(f'{path}: {old} in the checkpoint, {new} here')
  if (rest := len(lines) - _MOST_DIFFERENCES) > 0:
    lines[_MOST_DIFFERENCES:] = [f'and {rest} more']
  if lines:
    raise StructureMismatch(
      f'The checkpoint {directory} is of another model or optimiser; resume '
      'with the configuration that made it, or choose another --workdir:\n  '
      + '\n  '.join(lines)
    )


def _check_digests(record: dict[str, Any], leaves: dict[str, Any]) -> None:
  for path, leaf in record['leaves'].items():
    if manifest.digest_of_array(leaves[path]) != leaf['digest']:
      raise manifest.Damaged(f'{path} was restored with other values')


def _as_saved(on_host: np.ndarray, key_impl: str | None) -> Any:
  """Wraps the data of a PRNG key; returns any other array unchanged."""
  if key_impl is None:
    return on_host
  data = jax.numpy.asarray(on_host)
  return jax.random.wrap_key_data(data, impl=key_impl)


def _warn_of_drift(record: dict[str, Any], directory: pathlib.Path) -> None:
  """Warns if packages or devices differ, which affects rounding."""
  saved = record['versions'] | record['devices']
  here = manifest.versions() | manifest.devices()
  if drift := [
    f'{name} {saved[name]} -> {value}'
    for name, value in here.items()
    if saved.get(name, value) != value  # Older manifests have fewer entries.
  ]:
    logging.warning(
      'Resuming %s with other versions or devices: %s. The run continues, but '
      'not bit for bit as it would have.',
      directory,
      ', '.join(drift),
    )


def _layout(leaf: Any) -> str:
  """Returns dtype and shape, such as float32[3, 5]."""
  return f'{leaf.dtype}{list(leaf.shape)}'


def _is_key(leaf: Any) -> bool:
  return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
