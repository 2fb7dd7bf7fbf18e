"""Plays complete episodes."""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rmc_jax.envs import Environment
from rmc_jax.envs import EpisodeStatistics
from rmc_jax.envs.environment import select
from rmc_jax.envs.wrappers.episode_statistics import EpisodeState
from rmc_jax.rl.network import empty_inputs
from rmc_jax.rl.network import Network
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree


class Episodes(NamedTuple):
  """First and last states of episodes, [B, ...], and their statistics."""

  first: Any  # states of the environment
  last: Any
  episode_return: Array  # [B] undiscounted
  episode_length: Array  # [B]


class Player(NamedTuple):
  """An agent in the middle of episodes, [B, ...]."""

  game: EpisodeState
  core: ArrayTree
  inputs: Any  # AgentInputs of the next step
  ended: Array  # [B] whether the episode is over


def play_episodes(
  network: Network,
  params: ArrayTree,
  env: Environment,
  env_params: Any,
  keys: Array,
  *,
  greedy: bool = False,
) -> Episodes:
  """Plays one complete episode for each key.

  Finished episodes wait for the others, so each counts once; taking the first
  to finish would favour short ones.

  Args:
    network: the agent.
    params: its parameters.
    env: an environment without automatic resets whose episodes all end.
    env_params: its parameters.
    keys: [B] of levels and actions.
    greedy: whether to take the most probable action instead of a sampled one.
  """
  start, step = make_player(network, params, env, env_params, greedy)
  split = jax.vmap(lambda key: jax.random.split(key, 2))(keys)  # [B, 2]

  def body(loop):
    t, player = loop
    step_keys = jax.vmap(jax.random.fold_in, (0, None))(split[:, 1], t)
    return t + 1, step(player, step_keys)

  player = start(split[:, 0])
  _, final = jax.lax.while_loop(
    lambda loop: ~loop[1].ended.all(),
    body,
    (jnp.zeros((), jnp.int32), player),
  )
  return Episodes(
    player.game.game,
    final.game.game,
    final.game.episode_return,
    final.game.episode_length,
  )


def make_player(
  network: Network,
  params: ArrayTree,
  env: Environment,
  env_params: Any,
  greedy: bool,
):
  """Returns `start(keys) -> Player` and `step(player, keys) -> Player`.

  Arguments are those of `play_episodes`; a player that has ended stays as it
  is.
  """
  env = EpisodeStatistics(env)
  observe = jax.vmap(env.observe, (0, None))

  def start(keys):
    size = len(keys)
    game = jax.vmap(env.reset, (0, None))(keys, env_params)
    inputs = empty_inputs(env.observation_spec, size)
    inputs = inputs._replace(observation=observe(game, env_params))
    core = network.initial_state(params, size)
    return Player(game, core, inputs, jnp.zeros(size, bool))

  def step(player, keys):
    keys = jax.vmap(lambda key: jax.random.split(key, 2))(keys)  # [B, 2]
    inputs = jax.tree.map(lambda x: x[None], player.inputs)
    output, core = network.apply(params, inputs, player.core)
    logits = output.logits[0]  # [B, A]
    action = logits.argmax(-1)
    if not greedy:
      action = jax.vmap(jax.random.categorical)(keys[:, 0], logits)
    game, outcome = jax.vmap(env.step, (0, 0, 0, None))(
      keys[:, 1], player.game, action, env_params
    )
    game = jax.vmap(select)(player.ended, player.game, game)
    inputs = player.inputs._replace(
      observation=observe(game, env_params),
      last_action=action,
      last_reward=outcome.reward,
      first=jnp.zeros_like(player.ended),
    )
    ended = player.ended | outcome.terminated | outcome.truncated
    return Player(game, core, inputs, ended)

  return start, step
