"""Weights on disk: TensorFlow 1 checkpoints, and .npz files of parameters."""

from collections.abc import Mapping
import os
from typing import Any

import numpy as np

from rmc_jax.parity import reference
from rmc_jax.parity.reference import Computation


def read_checkpoint(
  path: str | os.PathLike, *, python: str | os.PathLike | None = None
) -> dict[str, np.ndarray]:
  """Reads every variable of a TensorFlow 1 checkpoint, optimiser slots too.

  Args:
    path: 'folder/model.ckpt-100', the common prefix of the .index and .data
      files; the .index file; or a folder, for its latest checkpoint.
    python: interpreter with TensorFlow, which reads the file; None for the one
      that launch/parity.sh made.

  Returns:
    TensorFlow name -> array, in the dtypes of the file.

  Raises:
    FileNotFoundError: the checkpoint or the interpreter does not exist.
  """
  path = os.path.abspath(path).removesuffix('.index')
  if not os.path.isdir(path) and not os.path.exists(path + '.index'):
    raise FileNotFoundError(
      f'There is no TensorFlow checkpoint {path}: expected a folder or a file '
      f'{path}.index.'
    )
  read = Computation('read', 'read_checkpoint', {'checkpoint': path}, {})
  return reference.find(python).run([read])['read']


def write_checkpoint(
  path: str | os.PathLike,
  variables: Mapping[str, Any],
  *,
  python: str | os.PathLike | None = None,
) -> str:
  """Writes variables as a TensorFlow 1 checkpoint, for `tf.train.Saver`.

  Args:
    path: the common prefix of the files to write, 'folder/model.ckpt'.
    variables: TensorFlow name -> array, e.g. from `to_sonnet`.
    python: as for `read_checkpoint`.

  Returns:
    The absolute path, which TensorFlow takes as the checkpoint's name.

  Raises:
    FileNotFoundError: the folder or the interpreter does not exist.
    TypeError: the dtype of an array is not one of NumPy's, such as bfloat16.
  """
  path = os.path.abspath(path)
  if not os.path.isdir(os.path.dirname(path)):
    raise FileNotFoundError(
      f'There is no folder {os.path.dirname(path)}. Make it first.'
    )
  arrays = {name: np.asarray(value) for name, value in variables.items()}
  _check_dtypes(arrays)
  write = Computation('write', 'write_checkpoint', {'checkpoint': path}, arrays)
  reference.find(python).run([write])
  return path


def save_params(
  path: str | os.PathLike, params: Mapping[str, Mapping[str, Any]]
) -> None:
  """Writes Haiku parameters; '<module path>/<parameter>' names each array."""
  flat: dict[str, Any] = flatten(params)
  _check_dtypes(flat)
  with open(path, 'wb') as file:
    np.savez(file, **flat)


def load_params(path: str | os.PathLike) -> dict[str, dict[str, np.ndarray]]:
  """Reads a file of `save_params`: module path -> parameter name -> array."""
  with np.load(path) as file:
    return unflatten(dict(file))


def flatten(params: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
  """Haiku parameters as '<module path>/<parameter>' -> array."""
  return {
    f'{module}/{parameter}': np.asarray(value)
    for module, parameters in params.items()
    for parameter, value in parameters.items()
  }


def unflatten(flat: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
  """The inverse of `flatten`."""
  params: dict[str, dict[str, np.ndarray]] = {}
  for name, value in flat.items():
    module, parameter = name.rsplit('/', 1)
    params.setdefault(module, {})[parameter] = value
  return params


def _check_dtypes(arrays: Mapping[str, np.ndarray]) -> None:
  """Refuses dtypes that np.savez and TensorFlow 1 do not know: bfloat16."""
  unsupported = {
    name: str(value.dtype)
    for name, value in arrays.items()
    if value.dtype.kind not in 'biuf'
  }
  if unsupported:
    raise TypeError(
      f'Cannot store {unsupported}; expected numbers of a NumPy dtype. '
      'Convert with .astype(np.float32).'
    )
