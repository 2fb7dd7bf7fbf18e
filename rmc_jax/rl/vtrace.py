"""V-trace: off-policy targets of an actor-critic."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from rmc_jax.types import Array


class VTrace(NamedTuple):
  """Targets and advantages, [T, ...], through which no gradient flows."""

  targets: Array
  advantages: Array


def vtrace(
  *,
  log_ratios: Array,
  rewards: Array,
  discounts: Array,
  ended: Array,
  values: Array,
  next_values: Array,
  clip_rho: float = 1.0,
  clip_c: float = 1.0,
  clip_advantage: float = 1.0,
  trace_decay: float = 1.0,
) -> VTrace:
  """Returns the targets v of the values V, and the advantages A of the actions.

  With the ratio pi(a) / mu(a) of the policy to that of the actor, clipped from
  above at `clip_rho` to rho, at `clip_c` to c and at `clip_advantage` to rho',

    delta[t] = rho[t] (r[t] + g[t] V'[t] - V[t])
    v[t] = V[t] + delta[t] + g[t] trace_decay c[t] (v[t + 1] - V[t + 1])
    A[t] = rho'[t] (r[t] + g[t] v[t + 1] - V[t])

  where V' is the value of the observation that the action led to. At the end of
  an episode and of the sequence the last term of v[t] is left out, and A[t] has
  V'[t], the bootstrap value, in place of v[t + 1].

  Source: Espeholt et al. 2018, "IMPALA", section 4.1, equation (1) and remarks
  1 and 2, and section 4.2. Differences: `ended` tells truncation from
  termination, and V' may differ from V[t + 1] where an episode was truncated.
  With V'[t] = V[t + 1], g[t] = 0 wherever `ended`, and `clip_c` and
  `trace_decay` of 1, it is vtrace.py of scalable_agent.

  Args:
    log_ratios: [T, ...] log pi(a) - log mu(a).
    rewards: [T, ...] r.
    discounts: [T, ...] g: the discount, or 0 where the episode terminated.
    ended: [T, ...] whether the action ended the episode, by termination or by
      truncation.
    values: [T, ...] V.
    next_values: [T, ...] V'.
    clip_rho: bound of rho; infinity for none.
    clip_c: bound of c.
    clip_advantage: bound of rho'.
    trace_decay: lambda of remark 2.
  """
  chex.assert_equal_shape(
    [log_ratios, rewards, discounts, ended, values, next_values]
  )
  log_ratios, rewards, discounts, values, next_values = jax.lax.stop_gradient(
    (log_ratios, rewards, discounts, values, next_values)
  )
  ratios = jnp.exp(log_ratios)
  rho = jnp.minimum(clip_rho, ratios)
  decay = discounts * trace_decay * jnp.minimum(clip_c, ratios)
  deltas = rho * (rewards + discounts * next_values - values)

  def backward(error, step):
    delta, decay, ended = step
    error = delta + jnp.where(ended, 0.0, decay * error)
    return error, error

  _, errors = jax.lax.scan(
    backward, jnp.zeros_like(deltas[0]), (deltas, decay, ended), reverse=True
  )
  targets = values + errors
  after = jnp.concatenate([targets[1:], next_values[-1:]])
  after = jnp.where(ended, next_values, after)
  advantages = jnp.minimum(clip_advantage, ratios) * (
    rewards + discounts * after - values
  )
  return VTrace(targets, advantages)
