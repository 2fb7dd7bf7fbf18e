"""Tests the rules of rmc_jax/envs/box_world/env.py one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.envs.box_world import BoxWorld
from rmc_jax.envs.box_world import make_params
from rmc_jax.envs.box_world import State
from rmc_jax.envs.box_world.constants import GEM

UP, DOWN, LEFT, RIGHT = range(4)
RED, BLUE, GREEN = 3, 11, 17


def make_state(player, held=-1, solution=(), distractors=(), loose=None):
  """Boxes are (place of the content, lock, content)."""
  boxes = [(loose or (1, 1), 0, loose and RED), *solution]
  boxes += [((1, 1), 0, None)] * (6 - len(boxes)) + list(distractors)
  boxes += [((1, 1), 0, None)] * (11 - len(boxes))
  places, locks, contents = zip(*boxes, strict=True)
  there = np.array([content is not None for content in contents])
  return State(
    player=jnp.array(player),
    held=jnp.array(held),
    place=jnp.array(places),
    lock=jnp.array(locks),
    content=jnp.array([content or 0 for content in contents]),
    has_lock=jnp.asarray(there & (np.arange(11) > 0)),
    has_content=jnp.asarray(there),
    is_distractor=jnp.arange(11) > 5,
    solved=jnp.array(False),
    step=jnp.array(0),
  )


def act(state, *actions, **changes):
  """Returns the state after some actions, and the last outcome."""
  for action in actions:
    state, outcome = jax.jit(BoxWorld().step)(
      jax.random.key(0), state, action, make_params(**changes)
    )
  return state, outcome


def test_the_border_stops_the_player():
  state, outcome = act(make_state((1, 12)), UP, RIGHT)
  assert state.player.tolist() == [1, 12]
  assert (outcome.reward, state.step) == (0, 2)
  state, _ = act(make_state((12, 1)), DOWN, LEFT)
  assert state.player.tolist() == [12, 1]


def test_a_loose_key_is_taken_and_replaces_the_one_held():
  state, outcome = act(make_state((5, 4), BLUE, loose=(5, 5)), RIGHT)
  assert state.player.tolist() == [5, 5]
  assert (state.held, outcome.reward) == (RED, 0)
  assert not state.has_content.any()


def test_a_lock_needs_its_key_and_uses_it_up():
  boxes = [((5, 5), RED, BLUE)]
  for held in (-1, BLUE):
    state, outcome = act(make_state((5, 7), held, boxes), LEFT)
    assert state.player.tolist() == [5, 7]
    assert (state.held, outcome.reward) == (held, 0)
  state, outcome = act(make_state((5, 7), RED, boxes), LEFT)
  assert state.player.tolist() == [5, 6]
  assert (state.held, outcome.reward) == (-1, 1)
  assert not outcome.terminated
  assert not state.has_lock.any()
  state, outcome = act(state, LEFT)
  assert (state.held, outcome.reward) == (BLUE, 0)


@pytest.mark.parametrize(
  'player, action', [((4, 5), DOWN), ((6, 5), UP), ((5, 4), RIGHT)]
)
def test_a_locked_content_is_blocked_from_every_side(player, action):
  boxes = [((5, 5), RED, GEM)]
  state, outcome = act(make_state(player, RED, boxes), action)
  assert state.player.tolist() == list(player)
  assert outcome.reward == 0
  assert not outcome.terminated


def test_the_box_of_the_gem_pays_before_the_gem():
  state, outcome = act(make_state((5, 7), RED, [((5, 5), RED, GEM)]), LEFT)
  assert outcome.reward == 1
  assert not outcome.terminated
  state, outcome = act(state, LEFT)
  assert outcome.reward == 10
  assert outcome.terminated
  assert not outcome.truncated
  assert state.solved
  assert state.held == -1


def test_a_distractor_ends_the_episode():
  boxes = [((8, 5), RED, GREEN)]
  state, outcome = act(make_state((8, 7), RED, distractors=boxes), LEFT)
  assert outcome.reward == -1
  assert outcome.terminated
  assert not state.solved


def test_an_episode_is_truncated_at_its_limit():
  for last, truncated in ((6, False), (7, True)):
    _, outcome = act(make_state((5, 5)), *[UP] * last, max_steps=7)
    assert outcome.truncated == truncated
    assert not outcome.terminated


def test_rewards_may_be_changed():
  rewards = {'step_reward': -0.1, 'solution_reward': 2.0}
  state = make_state((5, 7), RED, [((5, 5), RED, GEM)])
  _, outcome = act(state, LEFT, **rewards)
  assert outcome.reward == pytest.approx(1.9)
  _, outcome = act(state, LEFT, LEFT, gem_reward=5.0, **rewards)
  assert outcome.reward == pytest.approx(4.9)
  state = make_state((8, 7), RED, distractors=[((8, 5), RED, GREEN)])
  _, outcome = act(state, LEFT, distractor_reward=-3.0, **rewards)
  assert outcome.reward == pytest.approx(-3.1)


def test_a_fifth_action_stays():
  state, outcome = make_state((5, 5), BLUE), None
  step = jax.jit(BoxWorld(stay=True).step)
  for action in (4, 9):
    after, outcome = step(jax.random.key(0), state, action, make_params())
    assert after.player.tolist() == [5, 5]
    assert (after.held, after.step, outcome.reward) == (BLUE, 1, 0)


def test_actions_out_of_range_are_clipped():
  assert act(make_state((5, 5)), -4)[0].player.tolist() == [4, 5]
  assert act(make_state((5, 5)), 9)[0].player.tolist() == [5, 6]
