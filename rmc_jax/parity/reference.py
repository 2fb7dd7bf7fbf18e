"""The original: its environment on this machine, and calls to it."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any
from typing import NamedTuple

import numpy as np

RUNNER = pathlib.Path(__file__).with_name('reference_runner.py')
CHECKOUT = pathlib.Path(__file__).parents[2]
PRECISIONS = ('float32', 'float64')

Results = Mapping[str, np.ndarray]


class Computation(NamedTuple):
  """Something that both the original and rmc_jax compute.

  Attributes:
    name: unique among the computations of one call.
    kind: one of the `KINDS` of reference_runner.py.
    settings: arguments of that kind; must survive JSON.
    arrays: inputs, `weights/<TensorFlow name>` and so on.
  """

  name: str
  kind: str
  settings: dict[str, Any]
  arrays: dict[str, np.ndarray]

  def in_precision(self, dtype: str) -> 'Computation':
    """The same computation with its arrays in `dtype`, as 'name@dtype'."""
    arrays = {name: value.astype(dtype) for name, value in self.arrays.items()}
    return self._replace(name=f'{self.name}@{dtype}', arrays=arrays)


@dataclasses.dataclass
class Reference:
  """An interpreter that has TensorFlow and dm-sonnet.

  Attributes:
    python: the interpreter.
    sonnet_path: folder of a dm-sonnet to use in place of the installed one.
    about: versions of python, tensorflow and sonnet, and whether dm-sonnet was
      shimmed to run on them; empty before the first `run`.
  """

  python: pathlib.Path
  sonnet_path: pathlib.Path | None = None
  about: dict[str, Any] = dataclasses.field(default_factory=dict)

  def run(
    self, computations: Sequence[Computation]
  ) -> dict[str, dict[str, np.ndarray]]:
    """Runs computations in order, in one process.

    Args:
      computations: with distinct names.

    Returns:
      Name of a computation -> name of a result -> array.

    Raises:
      RuntimeError: the original failed; the message has its error output.
    """
    names = [computation.name for computation in computations]
    if len(set(names)) != len(names):
      raise ValueError(f'Computations must have distinct names. Got: {names}.')
    with tempfile.TemporaryDirectory() as name:
      folder = pathlib.Path(name)
      self._write_request(folder, computations)
      # -I isolates the runner from our packages and the user's settings.
      done = subprocess.run(
        [self.python, '-I', RUNNER, folder],
        capture_output=True,
        text=True,
        check=False,
      )
      if done.returncode:
        raise RuntimeError(
          f'The original failed in {self.python}:\n{done.stderr[-4000:]}'
        )
      self.about = json.loads((folder / 'response.json').read_text())
      with np.load(folder / 'response.npz') as file:
        arrays = dict(file)
    return {name: below(f'{name}/', arrays) for name in names}

  def run_in_both_precisions(
    self, computations: Sequence[Computation]
  ) -> dict[str, list[dict[str, np.ndarray]]]:
    """Name of a computation -> its results in each of `PRECISIONS`."""
    results = self.run(
      [c.in_precision(dtype) for c in computations for dtype in PRECISIONS]
    )
    return {
      c.name: [results[f'{c.name}@{dtype}'] for dtype in PRECISIONS]
      for c in computations
    }

  def _write_request(
    self, folder: pathlib.Path, computations: Sequence[Computation]
  ) -> None:
    request = {
      'sonnet_path': str(self.sonnet_path) if self.sonnet_path else None,
      'computations': [
        {'name': c.name, 'kind': c.kind, 'settings': c.settings}
        for c in computations
      ],
    }
    (folder / 'request.json').write_text(json.dumps(request))
    arrays: dict[str, Any] = {
      f'{c.name}/{key}': value
      for c in computations
      for key, value in c.arrays.items()
    }
    np.savez(folder / 'request.npz', **arrays)


def below(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
  """The arrays whose names start with `prefix`, under the rest of the names."""
  return {
    name.removeprefix(prefix): value
    for name, value in arrays.items()
    if name.startswith(prefix)
  }


def home() -> pathlib.Path:
  """Where launch/parity.sh puts its environments: RMC_PARITY_HOME, .parity."""
  return pathlib.Path(os.environ.get('RMC_PARITY_HOME', CHECKOUT / '.parity'))


def find(python: str | os.PathLike | None = None) -> Reference:
  """Finds the original of dm-sonnet 1.36.

  Args:
    python: an interpreter that has it; None for the one under `home()`.

  Raises:
    FileNotFoundError: it is not installed.
  """
  path = pathlib.Path(python) if python else home() / 'reference/bin/python'
  if not path.exists():
    raise FileNotFoundError(
      f'The original is not installed: {path} does not exist. Run '
      'launch/parity.sh first; it makes an environment with TensorFlow and '
      'dm-sonnet.'
    )
  return Reference(path)


def find_1_26(python: str | os.PathLike | None = None) -> Reference:
  """Finds the original of dm-sonnet 1.26, which scales queries differently.

  Raises:
    FileNotFoundError: it is not installed.
  """
  path = home() / 'sonnet-1.26'
  reference = find(python)
  if not path.exists():
    raise FileNotFoundError(
      f'dm-sonnet 1.26 is not installed: {path} does not exist. Run '
      'launch/parity.sh first.'
    )
  return dataclasses.replace(reference, sonnet_path=path)
