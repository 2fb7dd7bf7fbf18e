"""Tests every step of BoxWorld against the plain-Python reference."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.envs.box_world import BoxWorld
from rmc_jax.envs.box_world import make_params
from rmc_jax.envs.box_world.presets import PRESETS
from tests.envs.box_world import games
from tests.reference import box_world as reference


def compare(before, action, after, outcome, where, far2025=False):
  """Compares a step with the reference.

  Returns:
    The next state in the form of the reference, and how the episode ended.
  """
  name = games.ACTIONS[action]
  level, reward, end = reference.move(before, name, far2025)
  found = games.to_reference(after)
  # The places of locks that are gone do not matter.
  level['astray'] = level['astray'] & level['locks'].keys()
  assert found == level, where
  assert outcome.reward == np.float32(reward), where
  assert outcome.terminated == (end is not None), where
  assert bool(after.solved) == (end == 'gem'), where
  return found, end


def compare_games(params, num_games, num_steps, seed):
  states, actions, outcomes = games.play(
    jax.random.key(seed), params, num_games, num_steps
  )
  ends = collections.Counter()
  for game, steps in enumerate(games.rows(states)):
    before = games.to_reference(steps[0])
    for t, after in enumerate(steps[1:]):
      outcome = games.row(outcomes, t, game)
      where = f'game {game}, step {t}'
      before, end = compare(
        before, actions[t, game], after, outcome, where,
        far2025=params.variant == 'far2025',
      )  # fmt: skip
      ends[end] += 1
      limit = end is None and t + 1 >= params.max_steps
      assert outcome.truncated == limit, where
      if end is not None:
        break
  return ends


@pytest.mark.parametrize('preset', PRESETS)
def test_steps_of_random_play_equal_those_of_the_reference(preset):
  ends = compare_games(make_params(preset), 60, 122, seed=0)
  assert ends['distractor'] > 0


@pytest.mark.slow
@pytest.mark.parametrize('preset', PRESETS)
def test_many_steps_equal_those_of_the_reference(preset):
  ends = collections.Counter()
  for seed in range(10):
    ends += compare_games(make_params(preset), 1000, 122, seed)
  assert ends['distractor'] > 50
  # Random play hardly ever opens three boxes.
  assert preset == 'far2025' or ends['gem'] > 10


@pytest.mark.parametrize(
  'preset, changes',
  [('paper', {'min_solution': 3}), ('far2025', {'max_solution': 5})],
)
def test_steps_along_a_solution_equal_those_of_the_reference(preset, changes):
  # Random play opens few locks.
  env, params = BoxWorld(), make_params(preset, max_steps=1000, **changes)
  far2025 = preset == 'far2025'
  levels = games.draw_levels(2, params, 12)
  step = jax.jit(env.step)
  rewards = []
  for game in range(12):
    state = games.row(levels, game)
    before = games.to_reference(state)
    for name in reference.solve(before, far2025):
      action = games.ACTIONS.index(name)
      after, outcome = jax.device_get(
        step(jax.random.key(0), state, jnp.array(action), params)
      )
      before, end = compare(
        before, action, after, outcome, f'game {game}', far2025
      )
      rewards.append(float(outcome.reward))
      state = after
    assert end == 'gem'
  rewards = np.round(rewards, 3).tolist()
  # Of `far2025`, the loose key pays and the gem's box does not.
  assert rewards.count(0.9 if far2025 else 1.0) >= 3 * 12
  assert rewards.count(9.9 if far2025 else 10.0) == 12


def test_no_sequence_of_actions_leaves_the_state_space():
  params = make_params(max_steps=10)
  states, _, outcomes = games.play(jax.random.key(3), params, 256, 200)
  assert states.player.min() >= 1
  assert states.player.max() <= 12
  assert states.held.min() == -1
  assert states.held.max() < 20
  assert not (states.has_lock & ~states.has_content).any()
  assert (np.diff(states.has_lock.astype(int), axis=0) <= 0).all()
  assert (np.diff(states.step, axis=0) == 1).all()
  assert outcomes.truncated[9:].any()
  assert not outcomes.truncated[:9].any()
