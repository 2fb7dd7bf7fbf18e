"""Tests the rules of rmc_jax/envs/mini_pacman/env.py one by one."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.envs.mini_pacman.games import act
from tests.envs.mini_pacman.games import AWAY
from tests.envs.mini_pacman.games import cell
from tests.envs.mini_pacman.games import ghosts_at
from tests.envs.mini_pacman.games import make_state

STAY, RIGHT, UP, LEFT, DOWN = range(5)


def test_power_lasts_for_nineteen_further_steps():
  # A pill to the right of the player, and a ghost far away.
  state = make_state((3, 9), pills=[cell(3, 10), AWAY], **ghosts_at((11, 1)))
  powers = []
  state, _ = act(state, RIGHT, preset='public')
  for _ in range(21):
    powers.append(int(state.power))
    state, _ = act(state, STAY, preset='public', ghost_speed=0.0)
  assert powers == list(range(20, -1, -1))


@pytest.mark.parametrize(
  'mode, rewards',
  [  # Of food, food and a pill, and a second pill in the same cell.
    ('regular', (1.0, 3.0, 2.0)),
    ('avoid', (0.0, -5.0, -4.9)),
    ('hunt', (0.0, 1.0, 1.0)),
    ('ambush', (-0.1, -0.1, 0.0)),
    ('rush', (-0.1, 9.9, 10.0)),
  ],
)
def test_one_pill_is_eaten_at_a_time(mode, rewards):
  pills = [cell(3, 11), cell(3, 11)]
  state = make_state((3, 9), pills=pills, **ghosts_at((11, 1)))
  got = []
  for action in (RIGHT, RIGHT, STAY):
    state, outcome = act(state, action, preset='public', mode=mode)
    got.append(float(outcome.reward))
  np.testing.assert_allclose(got, rewards, atol=1e-6)
  assert state.level == (2 if mode == 'rush' else 1)


def test_food_at_the_start_waits_until_a_step_ends_there():
  state = make_state((3, 9), **ghosts_at((11, 1)))
  _, outcome = act(state, STAY)
  assert outcome.reward == 1.0
  _, outcome = act(state, UP)  # A wall.
  assert outcome.reward == 1.0
  after, _ = act(state, RIGHT)
  assert after.food[cell(3, 9)]
  assert not after.food[cell(3, 10)]


def test_a_powered_player_eats_one_ghost_in_a_step():
  state = make_state((3, 9), power=5, **ghosts_at((3, 9), (3, 9), (3, 11)))
  after, outcome = act(state, STAY, preset='public', mode='hunt')
  assert after.alive.tolist() == [False, True, True] + [False] * 5
  assert outcome.reward == 10.0
  # The other ghosts did not move.
  np.testing.assert_array_equal(after.ghosts, state.ghosts)
  after, _ = act(after, STAY, preset='public', mode='hunt')
  assert after.alive.tolist() == [False, False, True] + [False] * 5
  # It stays away for the rest of the level.
  after, _ = act(after, *[STAY] * 5, preset='public', mode='hunt')
  assert not after.alive[:2].any()


def test_player_and_ghost_meet_when_they_swap_cells():
  state = make_state((3, 9), directions=[2] * 8, **ghosts_at((3, 10)))
  after, outcome = act(state, RIGHT)
  assert outcome.terminated
  assert not outcome.truncated
  assert after.player == cell(3, 10)


def test_a_powered_player_runs_two_squares_and_eats_on_both():
  state = make_state((3, 8), power=5, **ghosts_at((3, 9), (11, 1)))
  after, outcome = act(state, RIGHT)
  assert after.player == cell(3, 10)
  assert outcome.reward == 1.0 + 5.0 + 1.0
  assert after.alive.tolist() == [False, True] + [False] * 6
  assert after.ghosts[1] == cell(11, 1)  # One ghost was eaten: others wait.
  # The pill gives no second square in its own step.
  state = make_state((3, 8), pills=[cell(3, 9), AWAY], **ghosts_at((11, 1)))
  assert act(state, RIGHT)[0].player == cell(3, 9)
  # Nor does a step at whose start the power runs out.
  state = make_state((3, 8), power=1, **ghosts_at((11, 1)))
  assert act(state, RIGHT)[0].player == cell(3, 9)
  state = make_state((3, 8), power=2, **ghosts_at((11, 1)))
  assert act(state, RIGHT)[0].player == cell(3, 10)
  # A wall stops each square, and a second one without a move eats nothing.
  pills = [cell(3, 1), cell(3, 1)]
  state = make_state((3, 2), power=5, pills=pills, **ghosts_at((11, 17)))
  after, outcome = act(state, LEFT)
  assert after.player == cell(3, 1)
  assert outcome.reward == 1.0 + 2.0
  assert after.has_pill.tolist() == [False, True]


@pytest.mark.parametrize(
  'preset, mode, steps',
  [('paper', 'hunt', 80), ('paper', 'ambush', 80), ('public', 'avoid', 128)],
)
def test_a_level_ends_by_time_after_its_last_image(preset, mode, steps):
  start = make_state(level_step=steps - 1, **ghosts_at((11, 1)))
  last, _ = act(start, STAY, preset=preset, mode=mode, ghost_speed=0.0)
  assert (last.level, last.level_step) == (1, steps)
  assert last.player == start.player
  first, _ = act(last, STAY, preset=preset, mode=mode, ghost_speed=0.0)
  assert (first.level, first.level_step) == (2, 1)
  assert first.step == last.step + 1
  again, _ = act(last, STAY, preset=preset, mode='rush', ghost_speed=0.0)
  assert again.level == 1


def test_an_episode_is_truncated_at_its_limit():
  state = make_state(step=2998, **ghosts_at((11, 1)))
  state, outcome = act(state, STAY)
  assert not outcome.truncated
  _, outcome = act(state, STAY)
  assert outcome.truncated
  assert not outcome.terminated
  _, outcome = act(state, STAY, max_steps=5000)
  assert not outcome.truncated


def test_actions_out_of_range_are_clipped():
  state = make_state((3, 9), **ghosts_at((11, 1)))
  after, _ = act(state, jnp.array(-3))
  assert after.player == state.player
  after, _ = act(make_state((3, 3), **ghosts_at((11, 1))), jnp.array(17))
  assert after.player == cell(4, 3)
