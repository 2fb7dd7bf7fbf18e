"""The result of a step, apart from the next state."""

from typing import NamedTuple

from rmc_jax.types import Array


class Outcome(NamedTuple):
  """The result of an action.

  Attributes:
    reward: [] float32.
    terminated: [] whether the episode ended by the rules of the game, so that
      no reward can follow.
    truncated: [] whether it ended only by its limit of steps.
  """

  reward: Array
  terminated: Array
  truncated: Array
