"""A program with the command line of the experiments, for its tests."""

import dataclasses

from absl.testing import flagsaver
import pytest

from experiments import command_line
from rmc_jax import training


@dataclasses.dataclass
class Core:
  mem_slots: int = 4
  gate_style: str = 'unit'
  key_size: int | None = None
  sizes: tuple[int, ...] = (3, 5)

  def validate(self):
    if self.mem_slots < 1:
      raise ValueError(f'mem_slots must be at least 1. Got: {self.mem_slots}.')


@dataclasses.dataclass
class Config:
  learning_rate: float = 1e-3
  num_steps: int = training.may_change_on_resume(default=100)
  clip: bool = True
  core: Core = dataclasses.field(default_factory=Core)


PRESETS = {
  'quick': {},
  'paper': {'learning_rate': 1, 'core': {'mem_slots': 8, 'key_size': 2}},
}


def start(*arguments, train=None, presets=None, config_class=Config):
  """Runs `main`; returns its exit code and the arguments of `train`."""
  calls = []

  def recording(config, runner):
    calls.append((config, runner.workdir))
    if train is not None:
      train()

  # flagsaver also removes the flags that `main` defines.
  with flagsaver.flagsaver(), pytest.raises(SystemExit) as end:
    command_line.main(
      recording,
      config_class,
      presets or PRESETS,
      experiment='toy',
      argv=['train.py', *arguments],
    )
  return end.value.code or 0, calls


def start_and_save(*arguments):
  """Like `start`, and creates a checkpoint."""
  _, [(_, workdir)] = start(*arguments)
  (workdir / 'checkpoints' / '10').mkdir(parents=True)
