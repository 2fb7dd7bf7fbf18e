"""The loss of the IMPALA agent."""

import chex
import jax
import jax.numpy as jnp

from rmc_jax.rl.vtrace import vtrace
from rmc_jax.types import Array


def impala_loss(
  *,
  logits: Array,
  actor_logits: Array,
  actions: Array,
  rewards: Array,
  discounts: Array,
  ended: Array,
  values: Array,
  next_values: Array,
  mask: Array | None = None,
  baseline_cost: float = 0.5,
  entropy_cost: float = 0.005,
  clip_rho: float = 1.0,
  clip_c: float = 1.0,
  clip_advantage: float = 1.0,
  trace_decay: float = 1.0,
) -> tuple[Array, dict[str, Array]]:
  r"""Returns the loss of IMPALA, summed over time and batch, and its parts.

  .. math:: L = \sum_{t,b} -A_{tb} \log \pi(a_{tb})
            + \frac{c_V}{2} (v_{tb} - V_{tb})^2 - c_H H(\pi_{tb})

  with the targets v and the advantages A of `vtrace`, through which no gradient
  flows, and the entropy H in nats.

  Reduction: SUM over time and batch; use with `make_update(reduction='sum')`. A
  mean would divide the gradient by T * B, and so change the effect of RMSProp's
  epsilon and of gradient clipping.

  Source: Espeholt et al. 2018, "IMPALA", section 4.2, and experiment.py of
  scalable_agent, whose entropy cost is 0.00025; 0.005 is that of Santoro et al.
  2018, appendix A.3.

  Args:
    logits: [T, ..., A] of the policy pi.
    actor_logits: [T, ..., A] of the policy mu that chose the actions.
    actions: [T, ...] integers in 0..A-1.
    rewards: [T, ...] this and all others but the costs as in `vtrace`.
    discounts: [T, ...]
    ended: [T, ...]
    values: [T, ...]
    next_values: [T, ...]
    mask: [T, ...] False for steps that the loss ignores; None for none. The
      step before an ignored one must have `ended`.
    baseline_cost: c_V.
    entropy_cost: c_H.
    clip_rho: []
    clip_c: []
    clip_advantage: []
    trace_decay: []

  Returns:
    The loss [], and the sums [] 'policy', 'baseline' and 'entropy', which are
    not yet multiplied by their costs.
  """
  chex.assert_type(actions, int)
  chex.assert_equal_shape([logits, actor_logits])
  chex.assert_equal_shape(
    [actions, rewards, discounts, ended, values, next_values]
  )
  chex.assert_shape(actions, logits.shape[:-1])
  log_probs = jax.nn.log_softmax(logits)  # [T, ..., A]
  log_prob = _select_actions(log_probs, actions)  # [T, ...]
  actor_log_prob = _select_actions(jax.nn.log_softmax(actor_logits), actions)
  targets, advantages = vtrace(
    log_ratios=log_prob - actor_log_prob,
    rewards=rewards,
    discounts=discounts,
    ended=ended,
    values=values,
    next_values=next_values,
    clip_rho=clip_rho,
    clip_c=clip_c,
    clip_advantage=clip_advantage,
    trace_decay=trace_decay,
  )
  parts = {
    'policy': -log_prob * advantages,
    'baseline': 0.5 * jnp.square(targets - values),
    'entropy': -(jnp.exp(log_probs) * log_probs).sum(-1),
  }  # [T, ...]
  if mask is not None:
    chex.assert_equal_shape([actions, mask])
    parts = jax.tree.map(lambda part: jnp.where(mask, part, 0.0), parts)
  parts = jax.tree.map(jnp.sum, parts)
  loss = (
    parts['policy']
    + baseline_cost * parts['baseline']
    - entropy_cost * parts['entropy']
  )
  return loss, parts


def _select_actions(log_probs: Array, actions: Array) -> Array:
  return jnp.take_along_axis(log_probs, actions[..., None], -1)[..., 0]
