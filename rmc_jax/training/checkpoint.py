"""Verified checkpoints, saved by Orbax in the background.

A manifest (`manifest.py`) is the last file of a step. A step is restored only
if every file and array matches its manifest. Otherwise it is moved to
`quarantined/`, next to a file with the reason, and the next older one is used.

Checkpoints hold host arrays under readable paths such as
`params/relational_memory/input/w`, so they fit any number of devices. Saving
and restoring are collectives of all processes, which share the folder; process
0 writes.
"""

from collections.abc import Callable
import pathlib
from typing import Any

from absl import logging
import jax
from jax.experimental import multihost_utils
import numpy as np
import orbax.checkpoint as ocp

from rmc_jax.checks import positive_int
from rmc_jax.errors import ConfigurationError
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


class Checkpointer:
  """Saves states and restores the newest good one.

  Args:
    directory: created if missing, unless `read_only`. Incomplete saves in it
      are removed before the next save.
    keep: number of steps. An old one is removed only after a newer one is
      complete.
    read_only: change nothing, to read the checkpoints of a run in progress.
  """

  def __init__(
    self,
    directory: str | pathlib.Path,
    *,
    keep: int = 3,
    read_only: bool = False,
  ):
    self._directory = pathlib.Path(directory).absolute()
    self._keep = positive_int('keep', keep)
    self._read_only = read_only
    self._manager = _Manager(
      self._directory,
      options=ocp.CheckpointManagerOptions(
        cleanup_tmp_directories=not read_only, read_only=read_only
      ),
    )
    self._steps = sorted(self._manager.all_steps())
    # The step being saved, and what its manifest will hold.
    self._pending: tuple[int, dict[str, dict[str, str]], Any] | None = None

  def save(self, step: int, state: ArrayTree, extra: Any = None) -> None:
    """Copies `state` to the host and starts to write it in the background.

    Waits for the previous save first. The buffers of `state` may be donated as
    soon as this returns. A step that exists is not saved again. `extra`,
    anything JSON can hold, is for `read_extra`.

    Raises:
      SaveFailed: the save before this one failed.
    """
    self.wait()
    if step in self._steps:
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
    while len(self._steps) > self._keep and not self._read_only:
      self._manager.delete(self._steps.pop(0))

  def restore(self, target: ArrayTree) -> tuple[int, ArrayTree] | None:
    """Restores the newest complete step.

    Args:
      target: the expected structure, such as `jax.eval_shape(init)`.

    Returns:
      The step and the state, a tree like `target` of host arrays and PRNG keys.
      None if nothing is saved.

    Raises:
      NoGoodCheckpoint: all checkpoints are damaged.
      StructureMismatch: the newest good step does not fit `target`.
      ConfigurationError: the processes do not see the same newest step.
    """
    self.wait()
    _check_shared(self._directory, self._steps[-1:])
    bad: dict[int, manifest.Damaged] = {}
    for step in reversed(self._steps):
      try:
        state = self._read(step, target)
      except manifest.Damaged as damage:
        bad[step] = damage
        continue
      self._quarantine(bad)
      return step, state
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

  def read_extra(self, step: int) -> Any:
    """Returns the `extra` of a step that `restore` returned."""
    return manifest.read(self._step_directory(step)).get('extra')

  def close(self) -> None:
    """Waits for the current save and stops Orbax's threads."""
    self.wait()
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
      if jax.process_index() == 0:
        manifest.write(self._step_directory(step), step, leaves, extra)
    except Exception as error:
      newest = f'step {self._steps[-1]}' if self._steps else 'none'
      raise SaveFailed(
        f'Saving step {step} in {self._directory} failed: {error}. Is the '
        f'disk full? The newest complete checkpoint: {newest}.'
      ) from error
    self._steps.append(step)

  def _read(self, step: int, target: ArrayTree) -> ArrayTree:
    """Reads one step; raises Damaged in all processes or in none."""
    directory = self._step_directory(step)
    record = _raise_together(lambda: manifest.verify(directory))
    _check_fit(record, target, directory)
    empty = {
      path: np.zeros(leaf.shape, leaf.dtype)
      for path, leaf in jax.eval_shape(_without_keys, target).items()
    }
    stored = self._manager.restore(
      step, args=ocp.args.StandardRestore(_storable(empty))
    )
    leaves = {**empty, **stored}
    _raise_together(lambda: _check_digests(record, leaves))
    _warn_of_drift(record, directory)
    filled = [
      _as_saved(record['leaves'][path], leaves[path])
      for path in _by_path(target)
    ]
    return jax.tree.unflatten(jax.tree.structure(target), filled)

  def _quarantine(self, bad: dict[int, manifest.Damaged]) -> None:
    """Moves damaged steps to `quarantined/`, with a file for each reason."""
    if self._read_only:
      return
    for step, damage in bad.items():
      self._steps.remove(step)
      if jax.process_index() == 0:
        place = self._directory / _QUARANTINE
        place.mkdir(exist_ok=True)
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
    if bad:
      _raise_together(lambda: None)  # A barrier: all steps are moved first.
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


def _check_shared(directory: pathlib.Path, newest: list[int]) -> None:
  """Raises if the processes do not share a folder: they would deadlock."""
  if jax.process_count() == 1:
    return
  step = newest[0] if newest else -1
  seen = multihost_utils.process_allgather(np.array(step)).tolist()
  if len(set(seen)) > 1:
    each = ', '.join(
      f'process {index} ' + ('none' if step < 0 else f'step {step}')
      for index, step in enumerate(seen)
    )
    raise ConfigurationError(
      f'The processes see different checkpoints in {directory}: the newest '
      f'is for {each}. Choose a workdir that they share.'
    )


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


def _as_saved(leaf: dict[str, str], on_host: np.ndarray) -> Any:
  """Wraps the data of a PRNG key; returns any other array unchanged."""
  if 'key_impl' in leaf:
    data = jax.numpy.asarray(on_host)
    return jax.random.wrap_key_data(data, impl=leaf['key_impl'])
  return on_host


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


def _raise_together(check: Callable[[], Any]) -> Any:
  """Returns check() in all processes; if one raises Damaged, all do."""
  result = damage = None
  try:
    result = check()
  except manifest.Damaged as found:
    damage = found
  if jax.process_count() > 1:
    bad = multihost_utils.process_allgather(np.array(damage is not None))
    if damage is None and np.any(bad):
      damage = manifest.Damaged('another process found it damaged')
  if damage is not None:
    raise damage
  return result


def _layout(leaf: Any) -> str:
  """Returns dtype and shape, such as float32[3, 5]."""
  return f'{leaf.dtype}{list(leaf.shape)}'


def _is_key(leaf: Any) -> bool:
  return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
