"""Reads the folders of runs; the command line of an analysis."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import sys
from typing import Any
from typing import NamedTuple

from rmc_jax.errors import CONFIGURATION_ERROR
from rmc_jax.errors import ConfigurationError
from rmc_jax.training import bucket
from rmc_jax.training.log import read_metrics

CONFIG = 'config.json'
CHECKPOINTS = 'checkpoints'


class Run(NamedTuple):
  """A run, read from its folder."""

  workdir: pathlib.Path
  experiment: str
  config: Mapping[str, Any]  # nested
  records: Sequence[Mapping[str, Any]]  # the lines of metrics.jsonl
  preset: str | None = None  # that the configuration started from

  @property
  def name(self) -> str:
    return self.workdir.name


def read_run(workdir: pathlib.Path, *experiments: str) -> Run:
  """Reads the run in a folder; see `read_config` for arguments and errors."""
  saved = read_config(workdir, *experiments)
  return Run(workdir, **saved, records=read_metrics(workdir))


def read_config(workdir: pathlib.Path, *experiments: str) -> dict[str, Any]:
  """Reads config.json: the experiment, the preset and the configuration.

  Raises:
    ConfigurationError: the folder has no run of these experiments, or a damaged
      file.
  """
  path = workdir / CONFIG
  try:
    saved = json.loads(path.read_text())
    saved = {
      'experiment': saved['experiment'],
      'preset': saved.get('preset'),
      'config': dict(saved['config']),
    }
  except (FileNotFoundError, NotADirectoryError):
    raise ConfigurationError(
      f'{workdir} has no {CONFIG}: it is not the folder of a run, or the file '
      'was removed. Restore it, or choose another folder.'
    ) from None
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise ConfigurationError(
      f'{path} cannot be read ({error!r}). Fix it, with what the training '
      'command prints with --print_config, or choose another folder.'
    ) from error
  if experiments and saved['experiment'] not in experiments:
    raise ConfigurationError(
      f'{workdir} holds a run of {saved["experiment"]}, not of '
      f'{" or ".join(experiments)}. Choose another folder.'
    )
  return saved


def read_result(workdir: pathlib.Path, name: str) -> Any:
  """Reads a JSON file that a run writes at its end.

  Raises:
    ValueError: it is missing or damaged.
  """
  path = workdir / name
  if not path.exists():
    raise ValueError(
      f'{workdir} has no {name}, which a run writes at its end; train it '
      'further.'
    )
  try:
    return json.loads(path.read_text())
  except ValueError as error:
    raise ValueError(
      f'{path} cannot be read ({error}). Start the training command again, '
      'which rewrites it.'
    ) from error


def evaluations(run: Run, metric: str) -> list[float]:
  """Returns a metric of all evaluations.

  Raises:
    ValueError: the run has no evaluation yet.
  """
  values = [line['eval'][metric] for line in run.records if 'eval' in line]
  if not values:
    raise ValueError(f'{run.workdir} has no evaluation yet; train it further.')
  return values


def steps_per_update(run: Run) -> int:
  """Returns the steps of all environments in an update of an agent."""
  return run.config['batch_size'] * run.config['agent']['unroll_length']


def common_folder(runs: Sequence[Run]) -> pathlib.Path:
  """Returns the folder for figures: that of one run, the parent of several."""
  return pathlib.Path(os.path.commonpath([run.workdir for run in runs]))


def main(
  report: Callable[..., str], usage: str | None, arguments: Sequence[str]
) -> int:
  """Prints the report of the folders in `arguments`; returns the exit code.

  One in a bucket is copied, and files that change are copied back.
  """
  if not arguments or '--help' in arguments:
    (sys.stdout if arguments else sys.stderr).write(f'{usage}\n')
    return 0 if arguments else CONFIGURATION_ERROR
  try:
    if len(arguments) > 1 and any(map(bucket.is_bucket, arguments)):
      raise ConfigurationError(
        'Figures of several runs are written next to them, so copy the runs '
        f'from the bucket to one folder first. Got: {" ".join(arguments)}.'
      )
    with contextlib.ExitStack() as folders:
      opened = [folders.enter_context(bucket.as_folder(a)) for a in arguments]
      sys.stdout.write(report(*opened) + '\n')
  except (OSError, ValueError) as error:
    sys.stderr.write(f'analysis: {error}\n')
    return CONFIGURATION_ERROR
  return 0
