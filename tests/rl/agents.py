"""Small agents for the tests."""

import jax
import jax.numpy as jnp

from rmc_jax import rl
from rmc_jax.cores import LSTM
from rmc_jax.cores import RelationalMemory
from rmc_jax.models import ActorCritic

CORES = {
  'lstm': lambda: LSTM(13),
  'relational_memory': lambda: RelationalMemory(3, 5, 2, gate_style='memory'),
}


def make_network(env, core='lstm', **options):
  options = {'channels': (), 'coordinates': 'none'} | options
  return rl.make_network(
    lambda: ActorCritic(CORES[core](), env.num_actions, **options),
    env.observation_spec,
  )


def random_params(network, scale=0.7):
  """Returns parameters with which policies are far from uniform."""
  params = jax.jit(network.init)(jax.random.key(0))
  leaves, structure = jax.tree.flatten(params)
  keys = jax.random.split(jax.random.key(1), len(leaves))
  return structure.unflatten(
    leaf + scale * jax.random.normal(key, leaf.shape)
    for key, leaf in zip(keys, leaves, strict=True)
  )


def make_trajectory(network, rollout, params, batch_size, seed=0):
  """Returns the trajectory after one unroll from the start, and carries."""
  start, first, second = jax.random.split(jax.random.key(seed), 3)
  core = network.initial_state(params, batch_size)
  carry = jax.jit(rollout.init, static_argnums=3)(start, {}, core, batch_size)
  make_batch = jax.jit(rollout.make_batch)
  index = jnp.arange(batch_size)
  _, carry = make_batch(params, {}, carry, first, index)
  trajectory, after = make_batch(params, {}, carry, second, index)
  return trajectory, carry, after
