"""Reads the folders of runs; the command line of an analysis."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import json
import os
import pathlib
import sys
from typing import Any
from typing import NamedTuple

from rmc_jax.errors import CONFIGURATION_ERROR
from rmc_jax.training.log import read_metrics

CONFIG = 'config.json'
CHECKPOINTS = 'checkpoints'


class Run(NamedTuple):
  """A run.

  Attributes:
    workdir: the folder of the run.
    experiment: the name of the experiment.
    config: the configuration, nested.
    records: the lines of metrics.jsonl.
  """

  workdir: pathlib.Path
  experiment: str
  config: Mapping[str, Any]
  records: Sequence[Mapping[str, Any]]

  @property
  def name(self) -> str:
    return self.workdir.name


def read_run(workdir: pathlib.Path, *experiments: str) -> Run:
  """Reads the run in a folder.

  Args:
    workdir: the folder.
    *experiments: names of the accepted experiments.

  Raises:
    ValueError: the folder has no run of these experiments, or a damaged file.
  """
  path = workdir / CONFIG
  try:
    saved = json.loads(path.read_text())
    run = Run(
      workdir, saved['experiment'], saved['config'], read_metrics(workdir)
    )
  except FileNotFoundError:
    raise ValueError(
      f'{workdir} has no {CONFIG}: it is not the folder of a run.'
    ) from None
  except (KeyError, TypeError, json.JSONDecodeError) as error:
    raise ValueError(
      f'{path} cannot be read ({error!r}). Fix it; the training command prints '
      'it with --print_config.'
    ) from error
  if run.experiment not in experiments:
    raise ValueError(
      f'{workdir} holds a run of {run.experiment}, expected one of '
      f'{", ".join(experiments)}.'
    )
  return run


def evaluations(run: Run, metric: str) -> list[float]:
  """Returns a metric of all evaluations.

  Raises:
    ValueError: the run has no evaluation yet.
  """
  values = [line['eval'][metric] for line in run.records if 'eval' in line]
  if not values:
    raise ValueError(f'{run.workdir} has no evaluation yet; train it further.')
  return values


def common_folder(runs: Sequence[Run]) -> pathlib.Path:
  """Returns the folder for figures: that of one run, the parent of several."""
  return pathlib.Path(os.path.commonpath([run.workdir for run in runs]))


def main(
  report: Callable[..., str], usage: str | None, arguments: Sequence[str]
) -> int:
  """Prints the report of the folders in `arguments`; returns the exit code."""
  if not arguments or '--help' in arguments:
    (sys.stdout if arguments else sys.stderr).write(f'{usage}\n')
    return 0 if arguments else CONFIGURATION_ERROR
  try:
    sys.stdout.write(report(*map(pathlib.Path, arguments)) + '\n')
  except (OSError, ValueError) as error:
    sys.stderr.write(f'analysis: {error}\n')
    return CONFIGURATION_ERROR
  return 0
