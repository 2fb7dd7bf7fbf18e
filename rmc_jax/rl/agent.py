"""The configuration of an IMPALA agent, and its loss on trajectories."""

from collections.abc import Callable
import dataclasses
import math

import jax
import jax.numpy as jnp

from rmc_jax import training
from rmc_jax.checks import all_hold
from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.rl import policy_lag
from rmc_jax.rl.loss import impala_loss
from rmc_jax.rl.network import ApplyFn
from rmc_jax.rl.trajectory import Trajectory
from rmc_jax.types import Array

REWARD_CLIPPING = ('none', 'clip', 'soft_asymmetric')


@dataclasses.dataclass
class AgentConfig:
  """Unrolls and loss; Santoro et al. 2018, appendix A.3, but for *."""

  unroll_length: int = 40
  discount: float = 0.99
  entropy_cost: float = 0.005
  baseline_cost: float = 0.5  # * as the next four, of scalable_agent
  clip_rho: float = 1.0  # * rho bar of V-trace
  clip_c: float = 1.0  # *
  clip_advantage: float = 1.0  # *
  trace_decay: float = 1.0  # * lambda of V-trace
  # * 'clip': to [-1, 1]. 'soft_asymmetric': 5 tanh(r / 5), times 0.3 for a
  # negative r. Both are of scalable_agent; 'clip' makes the gem of BoxWorld
  # worth no more than a box.
  reward_clipping: str = 'none'
  reward_scale: float = 1.0  # * before clipping
  policy_lag: int = 0  # * Actors on the device act with parameters that old.
  # Initial states drawn per environment and unroll, see `Rollout`.
  num_resets: int = 4
  greedy_evaluation: bool = False  # * the most probable action, not a sample

  def validate(self) -> None:
    one_of('reward_clipping', self.reward_clipping, REWARD_CLIPPING)
    # In an unroll of one step, all environments may reset.
    positive_int('unroll_length', self.unroll_length, least=2)
    positive_int('num_resets', self.num_resets)
    positive_int('policy_lag', self.policy_lag, least=0)
    checks = [
      ('discount', 0 <= self.discount <= 1, 'in [0, 1]'),
      ('trace_decay', 0 <= self.trace_decay <= 1, 'in [0, 1]'),
      ('reward_scale', 0 < self.reward_scale < math.inf, 'positive'),
    ]
    for name in (
      'entropy_cost', 'baseline_cost', 'clip_rho', 'clip_c', 'clip_advantage',
    ):  # fmt: skip
      checks.append((name, getattr(self, name) >= 0, 'at least 0'))
    all_hold(self, checks)


def make_loss_fn(
  apply_fn: ApplyFn, config: AgentConfig
) -> Callable[..., tuple[Array, training.LossAux]]:
  """Returns the loss on a `Trajectory`, for `make_update(reduction='sum')`.

  The weight is the number of steps that are not resets. Metrics: the parts of
  the loss, and mean return and length of the episodes that ended.

  Raises:
    ValueError: a field of `config` is out of range.
  """
  config.validate()

  def loss_fn(params, network_state, carry, key, batch):
    del key  # The network has no dropout.
    network_state = policy_lag.append_params(params, network_state)
    inputs = jax.tree.map(lambda x: x.swapaxes(0, 1), batch.inputs)
    output, _ = apply_fn(params, inputs, batch.state)  # [T + 1, B, ...]
    steps = jax.tree.map(
      lambda x: x.swapaxes(0, 1), batch._replace(state=(), inputs=())
    )  # [T, B, ...]
    mask = ~inputs.first[1:]  # Nothing is learned from a reset.
    loss, parts = impala_loss(
      logits=output.logits[:-1],
      actor_logits=steps.logits,
      actions=steps.actions,
      rewards=transform_rewards(steps.rewards, config),
      discounts=config.discount * (1.0 - steps.terminated),
      ended=steps.terminated | steps.truncated,
      values=output.value[:-1],
      next_values=output.value[1:],
      mask=mask,
      baseline_cost=config.baseline_cost,
      entropy_cost=config.entropy_cost,
      clip_rho=config.clip_rho,
      clip_c=config.clip_c,
      clip_advantage=config.clip_advantage,
      trace_decay=config.trace_decay,
    )
    weight = mask.sum().astype(jnp.float32)
    metrics = {name: (part, weight) for name, part in parts.items()}
    metrics |= _episodes(steps)
    return loss, training.LossAux(weight, metrics, network_state, carry)

  return loss_fn


def transform_rewards(rewards: Array, config: AgentConfig) -> Array:
  """Scales and clips rewards [...]; clipping as in scalable_agent."""
  rewards = rewards * config.reward_scale
  if config.reward_clipping == 'clip':
    return jnp.clip(rewards, -1, 1)
  if config.reward_clipping == 'soft_asymmetric':
    squeezed = 5 * jnp.tanh(rewards / 5)
    return jnp.where(rewards < 0, 0.3 * squeezed, squeezed)
  return rewards


def _episodes(steps: Trajectory) -> dict[str, tuple[Array, Array]]:
  ended = steps.terminated | steps.truncated
  count = ended.sum()
  return {
    'episode_return': (jnp.where(ended, steps.returns, 0).sum(), count),
    'episode_length': (jnp.where(ended, steps.lengths, 0).sum(), count),
  }
