"""The batch that actors pass to the learner."""

from typing import NamedTuple

from rmc_jax.models.actor_critic import AgentInputs
from rmc_jax.types import AnyArray
from rmc_jax.types import ArrayTree


class Trajectory(NamedTuple):
  """T steps of B environments, batch first.

  An environment that ended an episode is reset by the next step, which ignores
  its action, as in Gymnasium's AutoresetMode.NEXT_STEP. So the observation
  after the last action of an episode is in the sequence, and its value is the
  bootstrap value of a truncated episode. Nothing is learned from a step that
  resets: those before a `first` observation.

  Attributes:
    state: [B, ...] of the core, before the first observation.
    inputs: [B, T + 1, ...]
    actions: [B, T] int32, chosen after each observation but the last.
    logits: [B, T, A] of the policy that chose them.
    rewards: [B, T] float32 of each action.
    terminated: [B, T] whether the action ended the episode by the rules.
    truncated: [B, T] whether it ended it otherwise, as by a limit of steps.
    returns: [B, T] undiscounted sum of the episode's rewards up to this action.
    lengths: [B, T] int32, the steps of the episode up to this action.
  """

  state: ArrayTree
  inputs: AgentInputs
  actions: AnyArray
  logits: AnyArray
  rewards: AnyArray
  terminated: AnyArray
  truncated: AnyArray
  returns: AnyArray
  lengths: AnyArray
