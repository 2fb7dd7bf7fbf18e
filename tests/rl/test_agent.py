"""Tests rmc_jax/rl/agent.py against the loss of single episodes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import rl
from rmc_jax.models.actor_critic import AgentInputs
from rmc_jax.models.actor_critic import AgentOutput
from rmc_jax.rl.agent import transform_rewards
from tests.reference import vtrace as reference

B, T, A = 3, 8, 4
RESET = 4  # Step 3 ends an episode, step 4 resets.
CONFIG = rl.AgentConfig(
  discount=0.9, entropy_cost=0.3, baseline_cost=0.7, trace_decay=0.95
)


def apply_fn(params, inputs, state):
  """A network whose logits and values are in the observation."""
  seen = inputs.observation
  return AgentOutput(params * seen[..., :A], params * seen[..., A]), state


def make_trajectory(terminated):
  rng = np.random.default_rng(2)
  ended = np.zeros((B, T), bool)
  ended[:, RESET - 1] = True
  first = np.zeros((B, T + 1), bool)
  first[:, RESET + 1] = True
  never = np.zeros((B, T), bool)
  inputs = AgentInputs(
    observation=rng.standard_normal((B, T + 1, A + 1)),
    last_action=np.zeros((B, T + 1), int),
    last_reward=np.zeros((B, T + 1)),
    first=first,
  )
  trajectory = rl.Trajectory(
    state=(),
    inputs=inputs,
    actions=rng.integers(0, A, (B, T)),
    logits=rng.standard_normal((B, T, A)),
    rewards=rng.standard_normal((B, T)),
    terminated=ended if terminated else never,
    truncated=never if terminated else ended,
    returns=rng.standard_normal((B, T)),
    lengths=rng.integers(1, 9, (B, T)),
  )
  return jax.tree.map(jnp.asarray, trajectory)


def loss_of(trajectory, config=CONFIG):
  loss_fn = rl.make_loss_fn(apply_fn, config)
  return loss_fn(jnp.ones(()), {}, 'carry', None, trajectory)


def expected_loss(trajectory, terminated):
  """Returns the loss of the two episodes, each a sequence of its own."""
  total = 0.0
  for b in range(B):
    for steps in (slice(0, RESET), slice(RESET + 1, T)):
      seen = np.asarray(trajectory.inputs.observation[b], np.float64)
      values = seen[steps, A]
      next_values = seen[steps.start + 1 : steps.stop + 1, A]
      policy, actor = (
        np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        for logits in (
          seen[steps, :A],
          np.asarray(trajectory.logits[b, steps], np.float64),
        )
      )
      actions = np.asarray(trajectory.actions[b, steps])
      chosen = policy[np.arange(len(actions)), actions]
      ratios = chosen / actor[np.arange(len(actions)), actions]
      ended = np.arange(steps.start, steps.stop) == RESET - 1
      arguments = {
        'rewards': np.asarray(trajectory.rewards[b, steps], np.float64),
        'discounts': CONFIG.discount * (1 - terminated * ended),
        'ended': ended,
        'values': values,
        'next_values': next_values,
      }
      targets = reference.targets(
        ratios, **arguments, clip_rho=1.0, clip_c=1.0, trace_decay=0.95
      )
      advantages = reference.advantages(
        ratios, **arguments, v=targets, clip_advantage=1.0
      )
      total += -(np.log(chosen) * advantages).sum()
      total += 0.7 * 0.5 * ((targets - values) ** 2).sum()
      total += 0.3 * (policy * np.log(policy)).sum()
  return total


@pytest.mark.parametrize('terminated', [False, True])
def test_loss_equals_sum_over_separate_episodes(terminated):
  trajectory = make_trajectory(terminated)
  loss, aux = loss_of(trajectory)
  # A float32 sum of 21 steps with terms of order 1.
  np.testing.assert_allclose(
    loss, expected_loss(trajectory, terminated), rtol=1e-5, atol=1e-4
  )
  assert aux.weight == B * (T - 1)
  assert aux.carry == 'carry'
  assert aux.metrics['entropy'][1] == aux.weight


def test_reset_steps_are_masked():
  trajectory = make_trajectory(terminated=False)
  loss, _ = loss_of(trajectory)
  changed = trajectory._replace(
    actions=trajectory.actions.at[:, RESET].set(0),
    rewards=trajectory.rewards.at[:, RESET].add(50.0),
    logits=trajectory.logits.at[:, RESET, 1].add(3.0),
  )
  assert loss_of(changed)[0] == loss


@pytest.mark.parametrize('terminated', [False, True])
def test_only_a_truncation_bootstraps_from_the_final_observation(terminated):
  trajectory = make_trajectory(terminated)
  seen = trajectory.inputs.observation.at[:, RESET].add(1.0)
  changed = trajectory._replace(
    inputs=trajectory.inputs._replace(observation=seen)
  )
  same = np.allclose(loss_of(changed)[0], loss_of(trajectory)[0])
  assert same == terminated


def test_metrics_of_episodes_count_those_that_ended():
  trajectory = make_trajectory(terminated=True)
  _, aux = loss_of(trajectory)
  for name, values in {
    'episode_return': trajectory.returns,
    'episode_length': trajectory.lengths,
  }.items():
    total, count = aux.metrics[name]
    np.testing.assert_allclose(total, values[:, RESET - 1].sum(), rtol=1e-6)
    assert count == B


def test_reward_scaling_and_clipping():
  rewards = jnp.array([-20.0, -1.0, 0.0, 0.5, 10.0])

  def changed(**options):
    return transform_rewards(rewards, dataclasses.replace(CONFIG, **options))

  np.testing.assert_array_equal(changed(), rewards)
  np.testing.assert_array_equal(changed(reward_scale=0.5), 0.5 * rewards)
  np.testing.assert_allclose(
    changed(reward_clipping='clip'), [-1, -1, 0, 0.5, 1]
  )
  np.testing.assert_allclose(
    changed(reward_clipping='soft_asymmetric'),
    [
      1.5 * np.tanh(-4),
      1.5 * np.tanh(-0.2),
      0,
      5 * np.tanh(0.1),
      5 * np.tanh(2),
    ],
    rtol=1e-6,
  )
  np.testing.assert_allclose(
    changed(reward_clipping='clip', reward_scale=0.1), 0.1 * rewards.clip(-10)
  )


def test_rewards_are_changed_in_the_loss():
  trajectory = make_trajectory(terminated=True)
  clipped = dataclasses.replace(CONFIG, reward_clipping='clip')
  by_hand = trajectory._replace(rewards=jnp.clip(trajectory.rewards, -1, 1))
  assert loss_of(trajectory, clipped)[0] == loss_of(by_hand)[0]


@pytest.mark.parametrize(
  'field, value',
  [
    ('discount', 1.1),
    ('trace_decay', -0.1),
    ('unroll_length', 1),
    ('policy_lag', -1),
    ('num_resets', 0),
    ('entropy_cost', -1.0),
    ('clip_c', -1.0),
    ('reward_scale', 0.0),
    ('reward_clipping', 'tanh'),
  ],
)
def test_refuses_values_out_of_range(field, value):
  config = dataclasses.replace(CONFIG, **{field: value})
  for check in (
    config.validate,
    lambda: rl.make_loss_fn(apply_fn, config),
  ):
    with pytest.raises(ValueError, match=f'{field} must be .* Got: '):
      check()
