"""Checkpoints that are checked: saved by Orbax, verified before they are used.

A save runs in the background. Once Orbax has committed a step, a manifest is
written as its last file (`manifest.py`); a step is restored only if every file
and every array agrees with it. A step that does not is moved to `quarantined/`
with the reason beside it, and the next older one is used.

Only arrays of the host are stored, by readable paths such as
`params/relational_memory/input/w`, so a checkpoint knows nothing of the devices
it came from and fits any number of them. The state is the same on every device
and in every process: process 0 writes, all read. Saving and restoring are for
all processes together; the folder must be one that they share.
"""

from collections.abc import Callable
import pathlib
from typing import Any

from absl import logging
import jax
from jax.experimental import multihost_utils
import numpy as np
import orbax.checkpoint as ocp

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import manifest
from rmc_jax.types import ArrayTree

_QUARANTINE = 'quarantined'
_MOST_DIFFERENCES = 12


class SaveFailed(RuntimeError):
  """A save in the background failed; the checkpoints before it are whole."""


class NoGoodCheckpoint(ConfigurationError):
  """There are checkpoints, and every one of them is damaged."""


class StructureMismatch(ConfigurationError):
  """The newest good checkpoint is of another model or optimiser."""


class Checkpointer:
  """Saves states and restores the newest good one.

  Args:
    directory: made if missing, unless `read_only`; what earlier saves left half
      done is removed before the next one.
    keep: how many steps to keep, at least 1. An older one is removed only after
      a newer one is whole, so for a while there is one more.
    read_only: whether to leave everything as it is, damaged steps included: for
      who only looks at what another process may be writing.
  """

  def __init__(
    self,
    directory: str | pathlib.Path,
    *,
    keep: int = 3,
    read_only: bool = False,
  ):
    if keep < 1:
      raise ConfigurationError(f'At least 1 checkpoint is kept; got {keep}.')
    self._directory = pathlib.Path(directory).absolute()
    self._keep = keep
    self._read_only = read_only
    self._manager = _Manager(
      self._directory,
      options=ocp.CheckpointManagerOptions(
        cleanup_tmp_directories=not read_only, read_only=read_only
      ),
    )
    self._steps = sorted(self._manager.all_steps())
    # The step being saved, with the layouts and digests for its manifest.
    self._pending: tuple[int, dict[str, dict[str, str]]] | None = None

  def save(self, step: int, state: ArrayTree) -> None:
    """Copies `state` to the host and starts to write it in the background.

    Waits for the save before this one and for the copy with its digests; what
    goes on behind is the writing. The buffers of `state` may be donated as soon
    as this returns. A step that is there already is not saved again.

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
    self._pending = (
      step,
      {
        path: _describe(leaf, leaves[path])
        for path, leaf in _by_path(state).items()
      },
    )

  def poll(self) -> None:
    """Completes a save that has come to its end; never waits for one.

    To be called often: a failed save is noticed here.

    Raises:
      SaveFailed: the save failed.
    """
    if self._pending and not self._manager.is_saving_in_progress():
      self._complete()

  def wait(self) -> None:
    """Waits until the save under way, if any, is whole, and removes old steps.

    Raises:
      SaveFailed: the save failed.
    """
    self._complete()
    while len(self._steps) > self._keep and not self._read_only:
      self._manager.delete(self._steps.pop(0))

  def restore(self, target: ArrayTree) -> tuple[int, ArrayTree] | None:
    """Restores the newest step that is whole.

    Args:
      target: a tree of arrays or of `jax.ShapeDtypeStruct`, such as
        `jax.eval_shape(init)` gives: the state as this program wants it.

    Returns:
      The step and the state: a tree like `target` with the arrays on the host
      and PRNG keys as they were, to be placed on devices by the caller. None
      where nothing was saved yet.

    Raises:
      NoGoodCheckpoint: something was saved, and none of it is good.
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
    # Killed during the very first save: nothing was there to be lost.
    if [type(damage) for damage in bad.values()] == [manifest.CutShort]:
      self._quarantine(bad)
      return None
    raise NoGoodCheckpoint(
      f'No checkpoint in {self._directory} is good: '
      + '; '.join(f'step {step}: {damage}' for step, damage in bad.items())
      + '. Nothing was removed. Bring back a copy, or start afresh in '
      'another workdir.'
    )

  def close(self) -> None:
    """Waits for the save under way and lets go of Orbax's threads."""
    self.wait()
    self._manager.close()

  def __enter__(self) -> 'Checkpointer':
    return self

  def __exit__(self, kind, error, traceback) -> None:
    # After an error in a job of several, a peer may be gone, and waiting for
    # it would never end.
    if error is None or jax.process_count() == 1:
      self.close()

  def _complete(self) -> None:
    """Waits for Orbax to commit the step, then writes its manifest."""
    if self._pending is None:
      return
    step, leaves = self._pending
    self._pending = None
    try:
      self._manager.wait_until_finished()
      self._manager.check_for_errors()
      # One writer: the others hold the same numbers.
      if jax.process_index() == 0:
        manifest.write(self._step_directory(step), step, leaves)
    except Exception as error:
      whole = f'step {self._steps[-1]}' if self._steps else 'none'
      raise SaveFailed(
        f'Saving step {step} in {self._directory} failed: {error}. Is the '
        f'disk full? The newest whole checkpoint: {whole}.'
      ) from error
    self._steps.append(step)

  def _read(self, step: int, target: ArrayTree) -> ArrayTree:
    """Reads one step; every process comes to the same verdict on it."""
    directory = self._step_directory(step)
    _raise_together(lambda: manifest.verify(directory))
    record = manifest.read(directory)
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
    """Moves damaged steps out of the way, with the reason in a file beside."""
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
      _raise_together(lambda: None)  # Nobody looks before all are moved.
      self._manager.reload()

  def _step_directory(self, step: int) -> pathlib.Path:
    return self._directory / str(step)


class _Manager(ocp.CheckpointManager):
  """Orbax's manager, which leaves the question of preemption to the loop."""

  def reached_preemption(self, step: int) -> bool:
    # Asking JAX with steps, and from a thread, would spoil the numbers that
    # the loop asks with: the processes would no longer agree on where to stop.
    del step
    return False


def _check_shared(directory: pathlib.Path, newest: list[int]) -> None:
  """Refuses processes with a folder each: they would wait for one another."""
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
  # A copy even on the CPU, where device_get may give a view of the buffer that
  # the next update is about to reuse.
  return {
    path: np.array(leaf, copy=True)
    for path, leaf in jax.device_get(_without_keys(state)).items()
  }


def _storable(leaves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """All but the zero-size arrays: they hold nothing, and Orbax refuses them."""
  return {path: leaf for path, leaf in leaves.items() if leaf.size}


def _by_path(tree: ArrayTree) -> dict[str, Any]:
  """The leaves by readable path, in the order of the tree."""
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


def _describe(leaf: Any, on_host: np.ndarray) -> dict[str, str]:
  """What the manifest says of one leaf."""
  described = {
    'layout': _layout(leaf),
    'digest': manifest.digest_of_array(on_host),
  }
  if _is_key(leaf):
    described['key_impl'] = str(jax.random.key_impl(leaf))
  return described


def _check_fit(
  record: dict[str, Any], target: ArrayTree, directory: pathlib.Path
) -> None:
  """Refuses a checkpoint of another tree, with what differs in few lines."""
  saved = {path: leaf['layout'] for path, leaf in record['leaves'].items()}
  wanted = {path: _layout(leaf) for path, leaf in _by_path(target).items()}
  lines = []
  for path in sorted(saved.keys() | wanted.keys()):
    if path not in wanted:
      lines.append(f'{path}: {saved[path]} only in the checkpoint')
    elif path not in saved:
      lines.append(f'{path}: {wanted[path]} only in this program')
    elif saved[path] != wanted[path]:
      lines.append(
        f'{path}: {saved[path]} in the checkpoint, {wanted[path]} here'
      )
  if len(lines) > _MOST_DIFFERENCES:
    rest = len(lines) - _MOST_DIFFERENCES
    lines[_MOST_DIFFERENCES:] = [f'and {rest} more']
  if lines:
    raise StructureMismatch(
      f'The checkpoint {directory} is of another model or optimiser; resume '
      'with the configuration that made it, or choose another workdir:\n  '
      + '\n  '.join(lines)
    )


def _check_digests(record: dict[str, Any], leaves: dict[str, Any]) -> None:
  for path, leaf in record['leaves'].items():
    if manifest.digest_of_array(leaves[path]) != leaf['digest']:
      raise manifest.Damaged(f'{path} came back with other numbers')


def _as_saved(leaf: dict[str, str], on_host: np.ndarray) -> Any:
  """A key made a key again; any other array as it is."""
  if 'key_impl' in leaf:
    data = jax.numpy.asarray(on_host)
    return jax.random.wrap_key_data(data, impl=leaf['key_impl'])
  return on_host


def _warn_of_drift(record: dict[str, Any], directory: pathlib.Path) -> None:
  """Same packages and devices, same bits; otherwise nearly the same numbers.

  So it is on the CPU. A GPU adds in any order, and needs
  XLA_FLAGS=--xla_gpu_deterministic_ops=true for the same bits.
  """
  saved = record['versions'] | record['devices']
  here = manifest.versions() | manifest.devices()
  if drift := [
    f'{name} {saved[name]} -> {value}'
    for name, value in here.items()
    if saved.get(name, value) != value  # Older ones say less.
  ]:
    logging.warning(
      'Resuming %s under other conditions: %s. The run goes on, but not '
      'bit for bit as it would have.',
      directory,
      ', '.join(drift),
    )


def _raise_together(check: Callable[[], Any]) -> None:
  """Runs `check` in all processes; if one finds damage, all raise.

  Raises:
    manifest.Damaged: here or elsewhere.
  """
  damage = None
  try:
    check()
  except manifest.Damaged as found:
    damage = found
  if jax.process_count() > 1:
    bad = multihost_utils.process_allgather(np.array(damage is not None))
    if damage is None and np.any(bad):
      damage = manifest.Damaged('another process found it damaged')
  if damage is not None:
    raise damage


def _layout(leaf: Any) -> str:
  """A leaf's dtype and shape, such as float32[3, 5]."""
  return f'{leaf.dtype}{list(leaf.shape)}'


def _is_key(leaf: Any) -> bool:
  return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
