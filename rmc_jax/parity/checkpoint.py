"""Weights on disk: TensorFlow 1 checkpoints, and .npz files of parameters."""

from collections.abc import Mapping
import os
from typing import Any

import numpy as np

from rmc_jax.parity import reference
from rmc_jax.parity.reference import Case


def read_checkpoint(
  path: str | os.PathLike, *, python: str | os.PathLike | None = None
) -> dict[str, np.ndarray]:
  """Reads every variable of a TensorFlow 1 checkpoint, optimiser slots too.

  TensorFlow does it, in a process of its own.

  Args:
    path: 'folder/model.ckpt-100', the common beginning of the .index and .data
      files; the .index file; or a folder, for its latest checkpoint.
    python: interpreter with TensorFlow; None for the one that launch/parity.sh
      made.

  Returns:
    TensorFlow name -> array, in the dtypes of the file.

  Raises:
    FileNotFoundError: there is no such checkpoint, or no such interpreter.
  """
  path = os.path.abspath(path).removesuffix('.index')
  if not os.path.isdir(path) and not os.path.exists(path + '.index'):
    raise FileNotFoundError(
      f'There is no TensorFlow checkpoint {path}: neither a folder nor a file '
      f'{path}.index.'
    )
  case = Case('read', 'read_checkpoint', {'checkpoint': path}, {})
  return reference.find(python).run([case])['read']


def write_checkpoint(
  path: str | os.PathLike,
  variables: Mapping[str, Any],
  *,
  python: str | os.PathLike | None = None,
) -> str:
  """Writes variables as a TensorFlow 1 checkpoint, for `tf.train.Saver`.

  Args:
    path: the common beginning of the files to write, 'folder/model.ckpt'; the
      folder must exist.
    variables: TensorFlow name -> array, e.g. from `to_sonnet`.
    python: as for `read_checkpoint`.

  Returns:
    The absolute path that TensorFlow calls the checkpoint by.

  Raises:
    FileNotFoundError: there is no such folder, or no such interpreter.
    TypeError: an array is of no dtype of NumPy's own, such as bfloat16.
  """
  path = os.path.abspath(path)
  if not os.path.isdir(os.path.dirname(path)):
    raise FileNotFoundError(f'There is no folder {os.path.dirname(path)}.')
  arrays = {name: np.asarray(value) for name, value in variables.items()}
  _check_dtypes(arrays)
  case = Case('write', 'write_checkpoint', {'checkpoint': path}, arrays)
  reference.find(python).run([case])
  return path


def save_params(
  path: str | os.PathLike, params: Mapping[str, Mapping[str, Any]]
) -> None:
  """Writes Haiku parameters; '<module path>/<parameter>' names each array."""
  flat: dict[str, Any] = {
    f'{module}/{parameter}': np.asarray(value)
    for module, parameters in params.items()
    for parameter, value in parameters.items()
  }
  _check_dtypes(flat)
  with open(path, 'wb') as file:
    np.savez(file, **flat)


def load_params(
  path: str | os.PathLike,
) -> dict[str, dict[str, np.ndarray]]:
  """Reads what `save_params` wrote: module path -> parameter name -> array."""
  params: dict[str, dict[str, np.ndarray]] = {}
  with np.load(path) as file:
    for name in file.files:
      module, parameter = name.rsplit('/', 1)
      params.setdefault(module, {})[parameter] = file[name]
  return params


def _check_dtypes(arrays: Mapping[str, np.ndarray]) -> None:
  """Files of arrays know NumPy's own dtypes; bfloat16 is none of them."""
  strange = {
    name: str(value.dtype)
    for name, value in arrays.items()
    if value.dtype.kind not in 'biuf'
  }
  if strange:
    raise TypeError(
      f'Cannot be stored: {strange}; expected numbers of a NumPy dtype. '
      'Convert with .astype(np.float32).'
    )
