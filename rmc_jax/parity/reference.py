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

from rmc_jax.parity.reference_runner import below

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

  def with_settings(self, **settings: Any) -> 'Computation':
    """The same computation with these settings added or replaced."""
    return self._replace(settings=self.settings | settings)

  def in_precision(self, dtype: str) -> 'Computation':
    """As 'name@dtype', with its arrays, and a checkpoint of its own, in it."""
    arrays = {name: value.astype(dtype) for name, value in self.arrays.items()}
    result = self._replace(name=f'{self.name}@{dtype}', arrays=arrays)
    if 'checkpoint' not in self.settings:
      return result
    return result.with_settings(
      checkpoint=f'{self.settings["checkpoint"]}-{dtype}'
    )


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
    """Runs computations of distinct names in order, in one process.

    Returns name of a computation -> name of a result -> array.

    Raises:
      RuntimeError: the original failed; the message has its error output.
    """
    names = [c.name for c in computations]
    if len(set(names)) != len(names):
      raise ValueError(f'Computations must have distinct names. Got: {names}.')
    request = {
      'sonnet_path': str(self.sonnet_path) if self.sonnet_path else None,
      'computations': [
        {'name': c.name, 'kind': c.kind, 'settings': c.settings}
        for c in computations
      ],
    }
    given: dict[str, Any] = {
      f'{c.name}/{key}': x for c in computations for key, x in c.arrays.items()
    }
    with tempfile.TemporaryDirectory() as name:
      folder = pathlib.Path(name)
      (folder / 'request.json').write_text(json.dumps(request))
      np.savez(folder / 'request.npz', **given)
      # -I isolates the runner from our packages and the user's settings.
      # TensorFlow refuses the flags of a newer XLA.
      done = subprocess.run(
        [self.python, '-I', RUNNER, folder],
        env={k: v for k, v in os.environ.items() if k != 'XLA_FLAGS'},
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


def home() -> pathlib.Path:
  """Where launch/parity.sh puts its environments: RMC_PARITY_HOME, .parity."""
  return pathlib.Path(os.environ.get('RMC_PARITY_HOME', CHECKOUT / '.parity'))


def find(python: str | os.PathLike | None = None) -> Reference:
  """Finds dm-sonnet 1.36, by default in the interpreter under `home()`.

  Raises:
    FileNotFoundError: it is not installed.
  """
  path = pathlib.Path(python or home() / 'reference/bin/python')
  return Reference(_installed(path, 'The original'))


def find_1_26(python: str | os.PathLike | None = None) -> Reference:
  """As `find`, for dm-sonnet 1.26, which scales queries differently."""
  path = _installed(home() / 'sonnet-1.26', 'dm-sonnet 1.26')
  return dataclasses.replace(find(python), sonnet_path=path)


def _installed(path: pathlib.Path, what: str) -> pathlib.Path:
  if not path.exists():
    raise FileNotFoundError(
      f'{what} is not installed: {path} does not exist. Run launch/parity.sh '
      'first; it makes an environment with TensorFlow and dm-sonnet.'
    )
  return path
