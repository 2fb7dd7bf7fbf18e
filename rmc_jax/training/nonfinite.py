"""The policy for updates that are not finite: stop, skip, or roll back.

`update.py` never applies such an update, whatever the policy.
"""

import dataclasses

import numpy as np

from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.errors import Diverged
from rmc_jax.training.interval import Interval

ACTIONS = ('stop', 'skip', 'roll_back')
_ADVICE = 'Check the learning rate and the gradient clipping first.'


@dataclasses.dataclass
class NonfiniteConfig:
  """Configuration of the policy.

  'stop' ends the run at the first such update. 'skip' continues, and ends the
  run after `patience` calls in a row without a finite update. 'roll_back'
  instead restores the newest checkpoint then, and continues with the next data;
  it ends the run if that fails again before there is a newer checkpoint.
  """

  action: str = 'stop'
  patience: int = 10

  def validate(self) -> None:
    """Raises ValueError for an unknown action or a patience below 1."""
    one_of('action', self.action, ACTIONS)
    positive_int('patience', self.patience)


class NonfiniteStreak:
  """Counts consecutive calls without a finite update.

  Attributes:
    length: number of such calls up to the newest one.
    bad: step -> updates left out, for the calls since the last `read`.
  """

  def __init__(self, config: NonfiniteConfig, updates_per_call: int):
    config.validate()
    self._config = config
    self._updates_per_call = updates_per_call
    self._rolled_back_to: int | None = None
    self.length = 0
    self.bad: dict[int, int] = {}

  def count(self, step: int, mean: float | list[float]) -> None:
    """Counts a call that ended at `step`; `mean` is that of 'nonfinite'.

    In an ensemble, with a mean per member, a call is bad if no member has a
    finite update.
    """
    if np.max(mean) > 0:
      self.bad[step] = round(float(np.max(mean)) * self._updates_per_call)
    self.length = self.length + 1 if np.min(mean) >= 1 else 0

  def read(self, interval: Interval, wait: bool) -> None:
    """Clears `bad`, and counts the calls that `interval.read(wait)` reads.

    After a bad call, those in flight are read too.
    """
    self.bad.clear()
    for step, means in interval.read(wait):
      self.count(step, means['nonfinite'])
    if self.bad and not wait:
      for step, means in interval.read(wait=True):
        self.count(step, means['nonfinite'])

  def allows_save(self, last: bool) -> bool:
    """Returns whether to save a checkpoint now.

    Resuming within a streak should end like the uninterrupted run, so nothing
    is saved within one, except at the end of the run, `last`.
    """
    return not self.length or (last and not self.exhausted)

  @property
  def progress(self) -> bool:
    """Whether one of the bad calls had a finite update too."""
    return any(bad < self._updates_per_call for bad in self.bad.values())

  @property
  def exhausted(self) -> bool:
    """Whether `patience` is used up."""
    return self.length >= self._config.patience

  def warning(self) -> str:
    """Describes the bad calls."""
    updates = len(self.bad) * self._updates_per_call
    return (
      f'Step {max(self.bad)}: {sum(self.bad.values())} of the last {updates} '
      'updates were not finite and were left out.'
    )

  def stopped(self, workdir: str) -> Diverged:
    """Returns the error that ends a run whose action is 'stop'."""
    step, count = next(iter(self.bad.items()))
    kept = (
      f'State and metrics are saved in {workdir}; starting again continues '
      'without those updates.'
      if self.progress
      else f'Metrics and the earlier checkpoints are kept in {workdir}; '
      'starting again unchanged would fail in the same way.'
    )
    return Diverged(
      f'{count} of the {self._updates_per_call} updates up to step {step} had '
      'a loss, gradient or parameter change that is not finite and were left '
      f'out. {kept} {_ADVICE}'
    )

  def roll_back(self, step: int, saved: int, last: bool) -> None:
    """Starts a new streak from checkpoint `saved`, unless that would not help.

    Raises:
      Diverged: the action is 'skip', the run ends, or the last roll back went
        to the same checkpoint.
    """
    before = ''
    if self._config.action == 'roll_back' and not last:
      if self._rolled_back_to != saved:
        self._rolled_back_to, self.length = saved, 0
        return
      before = f', after rolling back to step {saved} before'
    raise Diverged(
      f'No update was finite for {self.length} calls in a row up to step {step}'
      f'{before}. The newest checkpoint is that of step {saved}. {_ADVICE}'
    )
