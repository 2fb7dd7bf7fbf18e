"""The result of a step, apart from the next state."""

from typing import Any
from typing import NamedTuple

from rmc_jax.types import Array


class Outcome(NamedTuple):
  """The result of an action.

  Attributes:
    reward: [] float32.
    terminated: [] whether the episode ended by the rules of the game, so that
      no reward can follow.
    truncated: [] whether it ended only by its limit of steps.
    final_state: with `AutoReset`, the state that the action led to, which is
      the last of its episode if that has ended. Otherwise None.
  """

  reward: Array
  terminated: Array
  truncated: Array
  final_state: Any = None
