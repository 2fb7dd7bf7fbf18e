"""Rollouts of an agent in environments on the device."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rmc_jax.checks import positive_int
from rmc_jax.envs import Environment
from rmc_jax.envs import EpisodeStatistics
from rmc_jax.envs.environment import select
from rmc_jax.models.actor_critic import AgentInputs
from rmc_jax.rl import policy_lag
from rmc_jax.rl.network import ApplyFn
from rmc_jax.rl.network import empty_inputs
from rmc_jax.rl.trajectory import Trajectory
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree


class ActorState(NamedTuple):
  """Environments and agents between two unrolls, [B, ...]; the `carry`.

  Attributes:
    game: states of the environments, with statistics of their episodes.
    core: states of the core.
    inputs: of the next step.
    ended: [B] whether the next step resets.
  """

  game: Any
  core: ArrayTree
  inputs: AgentInputs
  ended: Array


class Rollout:
  """Plays `env` with an agent; pass `make_batch` to `training.make_update`.

  Args:
    apply_fn: the agent.
    env: a game without automatic resets.
    params_fn: network state -> parameters of `env`.
    unroll_length: T, the steps in a trajectory.
    num_resets: initial states drawn for each environment and trajectory, used
      again if more episodes end; drawing one is the most expensive part of
      BoxWorld.
  """

  def __init__(
    self,
    apply_fn: ApplyFn,
    env: Environment,
    params_fn: Callable[[ArrayTree], Any],
    *,
    unroll_length: int,
    num_resets: int = 4,
  ):
    self._apply_fn = apply_fn
    self._env = EpisodeStatistics(env)
    self._params_fn = params_fn
    self._unroll_length = positive_int('unroll_length', unroll_length)
    self._num_resets = positive_int('num_resets', num_resets)

  def init(
    self,
    key: Array,
    network_state: ArrayTree,
    initial_state: ArrayTree,
    batch_size: int,
  ) -> ActorState:
    """Starts `batch_size` episodes; consumes the key.

    Args:
      key: a PRNG key.
      network_state: before the first update.
      initial_state: [B, ...] of the core.
      batch_size: B.
    """
    keys = jax.random.split(key, batch_size)
    env_params = self._params_fn(network_state)
    game = jax.vmap(self._env.reset, (0, None))(keys, env_params)
    inputs = empty_inputs(self._env.observation_spec, batch_size)
    inputs = inputs._replace(observation=self._observe(game, env_params))
    return ActorState(game, initial_state, inputs, jnp.zeros(batch_size, bool))

  def make_batch(
    self,
    params: ArrayTree,
    network_state: ArrayTree,
    carry: ActorState,
    key: Array,
    index: Array,
  ) -> tuple[Trajectory, ActorState]:
    """Plays T steps; see `training.make_update`.

    Args:
      params: of the agent.
      network_state: {}, or with a stage and older parameters.
      carry: [B / devices, ...]
      key: of the update.
      index: [B / devices] of the environments in the whole job.
    """
    env_params = self._params_fn(network_state)
    params = policy_lag.actor_params(params, network_state)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, index)  # [B]
    keys = jax.vmap(lambda key: jax.random.split(key, 2))(keys)  # [B, 2]
    draw = jax.vmap(jax.vmap(self._env.reset, (0, None)), (0, None))
    resets = draw(
      jax.vmap(lambda key: jax.random.split(key, self._num_resets))(keys[:, 0]),
      env_params,
    )  # [B, num_resets, ...]
    step_keys = jax.vmap(
      lambda key: jax.random.split(key, self._unroll_length), out_axes=1
    )(keys[:, 1])  # [T, B]

    def step(carry, step_keys):
      actor, used = carry
      actor, record = self._step(
        params, env_params, actor, step_keys, resets, used
      )
      return (actor, used + actor.inputs.first), record

    used = jnp.zeros(len(index), jnp.int32)
    (last, _), (inputs, records) = jax.lax.scan(step, (carry, used), step_keys)
    inputs = jax.tree.map(
      lambda steps, final: jnp.concatenate([steps, final[None]]),
      inputs,
      last.inputs,
    )  # [T + 1, B, ...]
    inputs, records = jax.tree.map(
      lambda x: x.swapaxes(0, 1), (inputs, records)
    )
    return Trajectory(state=carry.core, inputs=inputs, **records), last

  def _step(
    self,
    params: ArrayTree,
    env_params: Any,
    actor: ActorState,
    keys: Array,
    resets: Any,
    used: Array,
  ) -> tuple[ActorState, tuple]:
    """Acts once in every environment; returns fields of the trajectory."""
    keys = jax.vmap(lambda key: jax.random.split(key, 2))(keys)  # [B, 2]
    inputs = jax.tree.map(lambda x: x[None], actor.inputs)
    output, core = self._apply_fn(params, inputs, actor.core)
    logits = output.logits[0]  # [B, A]
    action = jax.vmap(jax.random.categorical)(keys[:, 0], logits)
    game, outcome = jax.vmap(self._env.step, (0, 0, 0, None))(
      keys[:, 1], actor.game, action, env_params
    )
    place = used % self._num_resets
    first = jax.tree.map(
      lambda leaf: jax.vmap(lambda row, i: row[i])(leaf, place), resets
    )
    reset = actor.ended
    game = jax.vmap(select)(reset, first, game)
    reward = jnp.where(reset, 0.0, outcome.reward)
    terminated = outcome.terminated & ~reset
    truncated = outcome.truncated & ~reset
    next_inputs = AgentInputs(
      observation=self._observe(game, env_params),
      last_action=jnp.where(reset, 0, action),
      last_reward=reward,
      first=reset,
    )
    next_actor = ActorState(game, core, next_inputs, terminated | truncated)
    return next_actor, (
      actor.inputs,
      {
        'actions': action,
        'logits': logits,
        'rewards': reward,
        'terminated': terminated,
        'truncated': truncated,
        'returns': game.episode_return,
        'lengths': game.episode_length,
      },
    )

  def _observe(self, game: Any, env_params: Any) -> Array:
    return jax.vmap(self._env.observe, (0, None))(game, env_params)
