"""The functions of an agent's network."""

from collections.abc import Callable
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from rmc_jax.models import ActorCritic
from rmc_jax.models.actor_critic import AgentInputs
from rmc_jax.models.actor_critic import AgentOutput
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

# (params, inputs [T, B, ...], state) -> (output [T, B, ...], state)
ApplyFn = Callable[
  [ArrayTree, AgentInputs, ArrayTree], tuple[AgentOutput, ArrayTree]
]


class Network(NamedTuple):
  """Pure functions of an `ActorCritic`.

  Attributes:
    init: key -> params.
    apply: (params, inputs, state) -> (AgentOutput, state).
    trace: the same with ((AgentOutput, StepTrace), state).
    initial_state: (params, batch_size) -> state.
  """

  init: Callable[[Array], ArrayTree]
  apply: ApplyFn
  trace: Callable[..., tuple]
  initial_state: Callable[[ArrayTree, int], ArrayTree]


def make_network(
  make_model: Callable[[], ActorCritic], observation: jax.ShapeDtypeStruct
) -> Network:
  """Transforms a model.

  Args:
    make_model: builds the model, inside an `hk.transform`.
    observation: shape and type of one observation.
  """

  def build():
    model = make_model()

    def init():
      return model(empty_inputs(observation, 1, 1), model.initial_state(1))

    return init, (model, model.trace, model.initial_state)

  transformed = hk.without_apply_rng(hk.multi_transform(build))
  apply, trace, initial_state = transformed.apply
  return Network(transformed.init, apply, trace, initial_state)


def check_network(network: Network) -> None:
  """Raises ValueError if the model refuses its arguments; computes nothing."""
  try:
    # A key outside would make JAX choose its devices.
    jax.eval_shape(lambda: network.init(jax.random.key(0)))
  except (TypeError, ValueError) as error:
    raise ValueError(str(error)) from error


def empty_inputs(
  observation: jax.ShapeDtypeStruct, *leading: int
) -> AgentInputs:
  """Returns zero observations [*leading, ...] with `first` set."""
  return AgentInputs(
    observation=jnp.zeros((*leading, *observation.shape), observation.dtype),
    last_action=jnp.zeros(leading, jnp.int32),
    last_reward=jnp.zeros(leading, jnp.float32),
    first=jnp.ones(leading, bool),
  )
