"""A curriculum over the parameters of an environment."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax import training
from rmc_jax.training import parallel
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

_NAME = 'stage'


@dataclasses.dataclass(frozen=True)
class Curriculum:
  """Moves to the next stage when an evaluation reaches a threshold.

  The network state holds the stage, an integer from 0. Training and evaluation
  play by the rules of that stage. Environments that are in the middle of an
  episode finish it by the new rules.

  Attributes:
    stages: parameters of the environment, of equal structure; one or more.
    metric: the metric of the evaluation that decides.
    threshold: its mean at which the next stage begins.
  """

  stages: Sequence[Any]
  metric: str = ''
  threshold: float = 1.0

  def __post_init__(self):
    if not self.stages:
      raise ValueError('stages must contain at least one. Got: ().')
    if len(self.stages) > 1 and not self.metric:
      raise ValueError("metric must name what ends a stage. Got: ''.")

  def init(self) -> ArrayTree:
    """Returns the network state of the first stage; {} if it is the only."""
    return {_NAME: jnp.zeros((), jnp.int32)} if len(self.stages) > 1 else {}

  def params(self, network_state: ArrayTree) -> Any:
    """Returns the parameters of the current stage."""
    if len(self.stages) == 1:
      return self.stages[0]
    return jax.tree.map(
      lambda *leaves: jnp.stack(list(map(jnp.asarray, leaves)))[
        network_state[_NAME]
      ],
      *self.stages,
    )

  def metrics(self, network_state: ArrayTree, ones: Array) -> dict[str, tuple]:
    """Returns the stage as a metric of [B] examples; {} for a single stage.

    Args:
      network_state: with the stage.
      ones: [B]
    """
    if len(self.stages) == 1:
      return {}
    return {_NAME: (network_state[_NAME] * ones, ones)}

  def on_evaluation(
    self, state: training.TrainState, means: dict[str, float]
  ) -> training.TrainState:
    """See `training.Experiment`."""
    if len(self.stages) == 1 or not means[self.metric] >= self.threshold:
      return state  # Also if the mean is nan.
    stage = int(state.network_state[_NAME])
    advanced = np.asarray(min(stage + 1, len(self.stages) - 1), np.int32)
    return state._replace(
      network_state=state.network_state | {_NAME: parallel.replicate(advanced)}
    )
