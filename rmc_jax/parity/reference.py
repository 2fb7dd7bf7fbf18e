"""Where the original lives on this machine, and a call to it."""

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


class Case(NamedTuple):
  """One thing to compute, by the original and by us.

  Attributes:
    name: unique among the cases of a call.
    kind: one of the kinds that reference_runner.py lists.
    settings: the kind's settings; must go through JSON.
    arrays: inputs, `weights/<TensorFlow name>` and so on.
  """

  name: str
  kind: str
  settings: dict[str, Any]
  arrays: dict[str, np.ndarray]


@dataclasses.dataclass
class Reference:
  """An interpreter that has TensorFlow and dm-sonnet.

  Attributes:
    python: the interpreter.
    sonnet_path: folder with another dm-sonnet than the installed one, or None.
    about: versions of python, tensorflow and sonnet, and whether dm-sonnet was
      shimmed to run on them; empty before the first `run`.
  """

  python: pathlib.Path
  sonnet_path: pathlib.Path | None = None
  about: dict[str, Any] = dataclasses.field(default_factory=dict)

  def run(self, cases: Sequence[Case]) -> dict[str, dict[str, np.ndarray]]:
    """Runs the cases in order, in one process; case -> result -> array.

    Raises:
      RuntimeError: the original failed; the message has what it wrote.
    """
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
      raise ValueError(f'Cases must have different names. Got: {names}.')
    with tempfile.TemporaryDirectory() as folder:
      self._write_request(pathlib.Path(folder), cases)
      # -I keeps the runner apart from our packages and the user's settings.
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
      about = pathlib.Path(folder, 'response.json').read_text()
      self.about = json.loads(about)
      with np.load(pathlib.Path(folder, 'response.npz')) as file:
        arrays = dict(file)
    return {
      name: {
        key.removeprefix(f'{name}/'): value
        for key, value in arrays.items()
        if key.startswith(f'{name}/')
      }
      for name in names
    }

  def _write_request(self, folder: pathlib.Path, cases: Sequence[Case]) -> None:
    request = {
      'sonnet_path': str(self.sonnet_path) if self.sonnet_path else None,
      'cases': [
        {**case.settings, 'name': case.name, 'kind': case.kind}
        for case in cases
      ],
    }
    (folder / 'request.json').write_text(json.dumps(request))
    arrays: dict[str, Any] = {
      f'{case.name}/{key}': value
      for case in cases
      for key, value in case.arrays.items()
    }
    np.savez(folder / 'request.npz', **arrays)


def home() -> pathlib.Path:
  """Where launch/parity.sh puts its environments: RMC_PARITY_HOME, .parity."""
  return pathlib.Path(os.environ.get('RMC_PARITY_HOME', CHECKOUT / '.parity'))


def find(python: str | os.PathLike | None = None) -> Reference:
  """The original as of dm-sonnet 1.36.

  Args:
    python: an interpreter that has it; None for the one under `home()`.

  Raises:
    FileNotFoundError: it is not there.
  """
  path = pathlib.Path(python) if python else home() / 'reference/bin/python'
  if not path.exists():
    raise FileNotFoundError(
      f'The original is not installed: there is no {path}. Run '
      'launch/parity.sh first; it makes an environment with TensorFlow and '
      'dm-sonnet.'
    )
  return Reference(path)


def find_1_26(python: str | os.PathLike | None = None) -> Reference:
  """The original as of dm-sonnet 1.26, which scaled queries differently.

  Raises:
    FileNotFoundError: it is not there.
  """
  reference = find(python)
  path = home() / 'sonnet-1.26'
  if not path.exists():
    raise FileNotFoundError(
      f'dm-sonnet 1.26 is not installed: there is no {path}. Run '
      'launch/parity.sh first.'
    )
  return dataclasses.replace(reference, sonnet_path=path)
