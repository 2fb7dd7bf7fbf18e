"""Assembles the experiment of an agent on the device."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from rmc_jax import training
from rmc_jax.envs import Environment
from rmc_jax.rl import policy_lag
from rmc_jax.rl.agent import AgentConfig
from rmc_jax.rl.agent import make_loss_fn
from rmc_jax.rl.curriculum import Curriculum
from rmc_jax.rl.evaluate import play_episodes
from rmc_jax.rl.network import Network
from rmc_jax.rl.rollout import Rollout
from rmc_jax.types import Array

# (first state, last state) of an episode -> name -> (sum, count)
MetricsOf = Callable[[Any, Any], dict[str, tuple[Array, Array]]]


def make_experiment(
  network: Network,
  env: Environment,
  curriculum: Curriculum,
  *,
  agent: AgentConfig,
  optimizer: optax.GradientTransformation,
  batch_size: int,
  eval_episodes: int,
  eval_batch_size: int,
  run: training.RunConfig,
  metrics_of: MetricsOf | None = None,
) -> training.Experiment:
  """Returns rollouts, loss and evaluation as an experiment.

  Args:
    network: the agent.
    env: a game without automatic resets.
    curriculum: its parameters, of one or more stages.
    agent: unrolls and loss.
    optimizer: of summed gradients.
    batch_size: B, environments over all devices.
    eval_episodes: number of episodes, the same in every evaluation.
    eval_batch_size: episodes at once, over all devices.
    run: length, intervals and seed.
    metrics_of: further metrics of each episode.
  """
  init_key, train_key, eval_key, _ = run.make_keys()
  rollout = make_rollout(network, env, curriculum, agent=agent)

  def init():
    params_key, game_key = jax.random.split(init_key)
    params = network.init(params_key)
    network_state = curriculum.init() | policy_lag.init_network_state(
      params, agent.policy_lag
    )
    core = network.initial_state(params, batch_size)
    carry = rollout.init(game_key, network_state, core, batch_size)
    return training.create_state(
      params, network_state, optimizer, train_key, carry
    )

  def metric_fn(params, network_state, keys):
    env_params = curriculum.params(network_state)
    episodes = play_episodes(
      network, params, env, env_params, keys, greedy=agent.greedy_evaluation
    )
    one = jnp.ones_like(episodes.episode_return)
    metrics = {
      'episode_return': (episodes.episode_return, one),
      'episode_length': (episodes.episode_length, one),
    } | curriculum.metrics(network_state, one)
    if metrics_of is None:
      return metrics
    further = jax.vmap(metrics_of)(episodes.first, episodes.last)
    if taken := sorted(metrics.keys() & further.keys()):
      raise ValueError(
        f'Evaluation itself reports {taken}; rename them in metrics_of.'
      )
    return metrics | further

  return training.Experiment(
    init=init,
    update=training.make_update(
      make_loss_fn(network.apply, agent),
      optimizer,
      global_batch_size=batch_size,
      make_batch=rollout.make_batch,
      reduction='sum',
      updates_per_call=run.updates_per_call,
    ),
    evaluate=training.make_evaluate_generated(
      metric_fn,
      lambda key: key,
      eval_key,
      num_examples=eval_episodes,
      global_batch_size=eval_batch_size,
    ),
    on_evaluation=curriculum.on_evaluation,
  )


def make_rollout(
  network: Network,
  env: Environment,
  curriculum: Curriculum,
  *,
  agent: AgentConfig,
) -> Rollout:
  """Returns the rollout of `make_experiment`, with arguments as there."""
  return Rollout(
    network.apply,
    env,
    curriculum.params,
    unroll_length=agent.unroll_length,
    num_resets=agent.num_resets,
  )
