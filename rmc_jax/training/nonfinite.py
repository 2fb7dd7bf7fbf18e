"""What is done about updates that are not finite: stop, skip, or roll back.

Such an update is never applied (`update.py`), whatever is chosen here.
"""

from collections.abc import Mapping
import dataclasses

from rmc_jax.errors import Diverged

ACTIONS = ('stop', 'skip', 'roll_back')


@dataclasses.dataclass
class NonfiniteConfig:
  """What follows when updates are left out for not being finite.

  Attributes:
    action: 'stop' ends the run at the first one. 'skip' goes on without it, and
      ends the run after `patience` calls in a row of which nothing was applied.
      'roll_back' then goes on from the newest checkpoint's weights and
      optimiser instead, with the data that come next; and ends the run if it
      comes there again before a newer checkpoint.
    patience: calls in a row.
  """

  action: str = 'stop'
  patience: int = 10

  def validate(self) -> None:
    if self.action not in ACTIONS:
      raise ValueError(
        f'action must be one of {", ".join(ACTIONS)}. Got: {self.action!r}.'
      )
    if self.patience < 1:
      raise ValueError(f'patience must be >= 1. Got: {self.patience}.')


class Streak:
  """Counts the calls in a row of which nothing was applied.

  Attributes:
    length: how many, up to the newest call told of.
    left_out: updates left out since the start of this process.
  """

  def __init__(self, config: NonfiniteConfig, updates_per_call: int):
    config.validate()
    self._config = config
    self._updates_per_call = updates_per_call
    self.length = 0
    self.left_out = 0

  def count(self, means: Mapping[str, float]) -> None:
    """Tells of the means of a call's metrics."""
    share = means['nonfinite']
    self.left_out += round(share * self._updates_per_call)
    self.length = self.length + 1 if share >= 1 else 0

  @property
  def broken(self) -> bool:
    """Whether the patience is at its end."""
    return self.length >= self._config.patience

  def give_up_or_go_on(
    self, step: int, saved: int, rolled_back_to: int | None, last: bool
  ) -> None:
    """At `broken`: begins a new streak where there is something left to try.

    Args:
      step: where the run is.
      saved: the step of the newest checkpoint; 0 is the beginning.
      rolled_back_to: the one that was gone back to last; None.
      last: whether the run ends here, with nothing left to go on with.

    Raises:
      Diverged: there is nothing.
    """
    why = (
      f'No update was finite for {self.length} calls in a row up to step {step}'
    )
    if self._config.action == 'roll_back' and not last:
      if rolled_back_to != saved:
        self.length = 0
        return
      why += f', and so it was after going back to step {saved} before'
    raise Diverged(
      f'{why}. The newest checkpoint is that of step {saved}. Look at the '
      'learning rate and the clipping first.'
    )
