"""Acting with the parameters of some updates ago.

A rollout on the device is on-policy, so V-trace has nothing to correct. A lag
acts with older parameters, as actors on other machines do. The network state
holds the parameters of the last updates.
"""

import jax
import jax.numpy as jnp

from rmc_jax.types import ArrayTree

_NAME = 'last_params'


def init_network_state(params: ArrayTree, lag: int) -> ArrayTree:
  """Returns the network state of an agent that lags `lag` updates behind."""
  if not lag:
    return {}
  return {_NAME: jax.tree.map(lambda leaf: jnp.stack(lag * [leaf]), params)}


def actor_params(params: ArrayTree, network_state: ArrayTree) -> ArrayTree:
  """Returns the oldest parameters; `params` itself without a lag."""
  if _NAME not in network_state:
    return params
  return jax.tree.map(lambda leaf: leaf[0], network_state[_NAME])


def append_params(params: ArrayTree, network_state: ArrayTree) -> ArrayTree:
  """Returns the network state with `params` in place of the oldest."""
  if _NAME not in network_state:
    return network_state
  last = jax.tree.map(
    lambda leaves, leaf: jnp.concatenate([leaves[1:], leaf[None]]),
    network_state[_NAME],
    params,
  )
  return network_state | {_NAME: last}
