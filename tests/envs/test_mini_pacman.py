"""Tests rmc_jax/envs/mini_pacman/ against a program of loops and its rules."""

import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax import training
from rmc_jax.envs.mini_pacman import env as lib
from rmc_jax.envs.mini_pacman import ghosts
from rmc_jax.envs.mini_pacman import level as level_lib
from rmc_jax.envs.mini_pacman import make_params
from rmc_jax.envs.mini_pacman import maze
from rmc_jax.envs.mini_pacman import MiniPacman
from rmc_jax.envs.mini_pacman.presets import MODES
from rmc_jax.envs.mini_pacman.presets import PRESETS
from rmc_jax.training.checkpoint import Checkpointer
from tests.envs import mini_pacman_games as games
from tests.reference import mini_pacman as reference

STAY, RIGHT, UP, LEFT, DOWN = range(5)
AWAY = 0  # A cell in a corner, (1, 1).


def cell(row, column):
  return int(maze.CELL_AT[row, column])


def make_state(player=(3, 9), **fields):
  """Level 1 with all food, and nothing else within reach."""
  layout = level_lib.draw_layout(jax.random.key(0))
  state = level_lib.start_level(jnp.array(1), layout, jnp.array(0))
  corner = jnp.full(8, AWAY, jnp.int32)
  state = dataclasses.replace(
    state,
    player=jnp.array(cell(*player)),
    ghosts=corner,
    pills=corner[:2],
  )
  return dataclasses.replace(
    state, **{name: jnp.asarray(value) for name, value in fields.items()}
  )


def ghosts_at(*places):
  cells = [cell(*place) for place in places]
  num = len(cells)
  return {
    'ghosts': jnp.array(cells + [AWAY] * (8 - num), jnp.int32),
    'alive': jnp.arange(8) < num,
  }


def act(state, *actions, preset='paper', mode='regular', **changes):
  """Returns the state and the outcome after some actions."""
  params = make_params(preset, mode, **changes)
  for seed, action in enumerate(actions):
    draws = lib.draw(jax.random.key(seed))
    state, outcome = jax.jit(lib.step)(draws, state, action, params)
  return state, outcome


def test_maze_is_the_published_one():
  assert maze.NUM_CELLS == 138
  assert collections.Counter(maze.EXITS.sum(1).tolist()) == {
    2: 114,
    3: 16,
    4: 8,
  }
  junctions = {tuple(c) for c in maze.CELLS[maze.EXITS.sum(1) == 4].tolist()}
  assert junctions == {(r, c) for r in (3, 11) for c in (3, 5, 13, 15)}
  np.testing.assert_array_equal(maze.CELL_AT < 138, (maze.CELL_AT < 138)[::-1])
  np.testing.assert_array_equal(
    maze.CELL_AT < 138, (maze.CELL_AT < 138)[:, ::-1]
  )
  assert [tuple(c) for c in maze.CELLS.tolist()] == reference.CORRIDORS


# Ghost (row, column) and direction, player and its power; the next place and
# direction.
@pytest.mark.parametrize(
  'ghost, direction, player, power, place, turned',
  [
    ((3, 3), 'right', (11, 17), 0, (3, 4), 'right'),
    ((3, 3), 'right', (11, 17), 5, (2, 3), 'up'),
    ((3, 3), 'up', (11, 3), 0, (3, 4), 'right'),
    ((3, 3), 'down', (11, 3), 5, (3, 4), 'right'),
    ((1, 1), 'up', (9, 9), 0, (1, 2), 'right'),
    ((1, 1), 'left', (9, 9), 5, (2, 1), 'down'),
    ((3, 9), 'right', (3, 1), 0, (3, 10), 'right'),
    ((7, 6), 'down', (1, 1), 0, (7, 5), 'left'),
    ((7, 6), 'up', (1, 1), 0, (6, 6), 'up'),
    ((5, 5), 'right', (1, 9), 0, (5, 6), 'right'),
    ((9, 5), 'right', (13, 9), 0, (9, 6), 'right'),
    ((11, 5), 'left', (13, 5), 0, (12, 5), 'down'),
    ((3, 5), 'left', (3, 5), 0, (3, 4), 'left'),
    ((3, 1), 'left', (3, 17), 0, (2, 1), 'up'),
  ],
)
def test_ghosts_turn_as_in_the_public_code(
  ghost, direction, player, power, place, turned
):
  after = ghosts.turn(
    jnp.array([cell(*ghost)]),
    jnp.array([reference.ORDER.index(direction)]),
    jnp.array(cell(*player)),
    jnp.array(power > 0),
    jnp.array([False]),
    jnp.array([0.0]),
  )
  assert reference.ORDER[after[0]] == turned
  assert maze.NEXT_CELL[cell(*ghost), after[0] + 1] == cell(*place)


def compare(preset, mode, num_games, num_steps, seed=0):
  params = make_params(preset, mode)
  rules = dataclasses.asdict(params)
  states, actions, draws, outcomes = games.play(
    jax.random.key(seed), params, num_games, num_steps
  )
  counts = collections.Counter()
  for game in range(num_games):
    for t in range(num_steps):
      before = games.to_reference(games.row(states, t, game))
      expected = reference.Game(
        before,
        games.ACTIONS[actions[t, game]],
        games.draws_to_reference(games.row(draws, t, game)),
        rules,
      )
      where = f'game {game}, step {t}'
      after = games.to_reference(games.row(states, t + 1, game))
      assert after == expected.state, where
      outcome = games.row(outcomes, t, game)
      assert outcome.reward == pytest.approx(expected.reward, abs=1e-5), where
      assert outcome.terminated == expected.died, where
      assert outcome.truncated == expected.out_of_time, where
      counts['levels'] += after['level'] > before['level']
      counts['deaths'] += expected.died
      counts['ghosts eaten'] += expected.ate_ghost
      if expected.died:
        break
  return counts


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('preset', PRESETS)
def test_steps_equal_those_of_the_reference(preset, mode):
  counts = compare(preset, mode, num_games=60, num_steps=12)
  assert counts['deaths'] > 5
  assert counts['ghosts eaten'] > 5
  assert counts['levels'] > (2 if mode != 'avoid' else 0)


@pytest.mark.slow
@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('preset', PRESETS)
def test_many_steps_equal_those_of_the_reference(preset, mode):
  compare(preset, mode, num_games=2000, num_steps=200, seed=1)


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
  [  # Of food, a pill with food, and the pill that was below it.
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


def test_paths_that_cross_meet():
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
  # Nor does the last step with power.
  state = make_state((3, 8), power=1, **ghosts_at((11, 1)))
  assert act(state, RIGHT)[0].player == cell(3, 9)
  # A wall stops each square.
  state = make_state((3, 2), power=5, **ghosts_at((11, 17)))
  assert act(state, LEFT)[0].player == cell(3, 1)


def test_levels_add_a_ghost_every_second_time():
  counts = [int(level_lib.num_ghosts(jnp.array(k))) for k in range(1, 20)]
  assert counts == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 8, 8, 8]


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


def test_levels_start_everywhere_and_ghosts_far_away():
  num = 20_000
  keys = jax.random.split(jax.random.key(3), num)
  layouts = jax.vmap(level_lib.draw_layout)(keys)
  for cells in (layouts.player, layouts.pills[:, 0], layouts.pills[:, 1]):
    counts = np.bincount(cells, minlength=138)
    # Five standard deviations, of 138 counts.
    assert abs(counts - num / 138).max() < 5 * np.sqrt(num / 138)
  places = maze.CELLS[np.asarray(layouts.ghosts)]  # [num, G, 2]
  offset = places - maze.CELLS[np.asarray(layouts.player)][:, None]
  is_near = ((offset >= -5) & (offset <= 4)).all(-1)
  assert not is_near.any()
  for player in (cell(1, 1), cell(7, 9 - 3), cell(13, 17)):
    found = set(np.unique(layouts.ghosts[layouts.player == player]).tolist())
    expected = {
      index
      for index, place in enumerate(games.PLACES)
      if reference.may_start(place, games.PLACES[player])
    }
    assert found == expected
  counts = np.bincount(layouts.directions.reshape(-1), minlength=4)
  assert abs(counts / counts.sum() - 0.25).max() < 0.01


@pytest.mark.parametrize('preset', PRESETS)
def test_images_equal_those_of_the_reference(preset):
  params = make_params(preset, max_steps=77)
  rules = dataclasses.asdict(params)
  states = jax.vmap(games.random_state)(jax.random.split(jax.random.key(5), 40))
  images = {
    (view, pixels): jax.vmap(MiniPacman(view, pixels).observe, (0, None))(
      states, params
    )
    for view in ('viewport', 'full')
    for pixels in ('rgb', 'symbolic')
  }
  for (view, pixels), image in images.items():
    shape = MiniPacman(view, pixels).observation_shape
    assert image.shape == (40, *shape)
    assert image.dtype == jnp.float32
  for game in range(40):
    state = games.to_reference(games.row(jax.device_get(states), game))
    full = np.array(reference.render(state, rules))
    np.testing.assert_allclose(images['full', 'rgb'][game], full, atol=1e-6)
    row, column = state['player']
    for pixels in ('rgb', 'symbolic'):
      whole = np.asarray(images['full', pixels][game])
      wall = np.ones(3) if pixels == 'rgb' else np.eye(6)[0]
      bordered = np.broadcast_to(wall, (19, 23, len(wall))).copy()
      bordered[2:-2, 2:-2] = whole
      np.testing.assert_array_equal(
        images['viewport', pixels][game],
        bordered[row : row + 5, column : column + 5],
      )
    planes = np.asarray(images['full', 'symbolic'][game])
    places = [
      [each['place'] for each in state['ghosts'] if each['alive']],
      [each['place'] for each in state['pills'] if each['there']],
    ]
    power = state['power'] / 20
    for place in np.ndindex(15, 19):
      ghost = place in places[0]
      expected = [
        reference.is_wall(place),
        place in state['food'],
        place == state['player'],
        ghost * (1 - power),
        ghost * power,
        place in places[1],
      ]
      np.testing.assert_allclose(planes[place], expected, atol=1e-6)


@pytest.mark.parametrize('preset', PRESETS)
def test_no_sequence_of_actions_leaves_the_state_space(preset):
  for index, mode in enumerate(MODES):
    states, *_ = games.play(
      jax.random.key(index), make_params(preset, mode), 64, 150
    )
    for cells in (states.player, states.ghosts, states.pills):
      assert cells.min() >= 0
      assert cells.max() < 138
    assert set(np.unique(states.directions)) <= {0, 1, 2, 3}
    assert states.power.min() >= 0
    assert states.power.max() == 20
    assert states.level.min() >= 1
    assert (np.diff(states.step, axis=0) == 1).all()


def test_actions_out_of_range_are_clipped():
  state = make_state((3, 9), **ghosts_at((11, 1)))
  after, _ = act(state, jnp.array(-3))
  assert after.player == state.player
  after, _ = act(make_state((3, 3), **ghosts_at((11, 1))), jnp.array(17))
  assert after.player == cell(4, 3)


@pytest.mark.parametrize('new_key', [jax.random.key, jax.random.PRNGKey])
def test_games_run_under_jit_vmap_and_scan(new_key):
  env, params = MiniPacman(), make_params()
  traces = []

  def play(key, params):
    traces.append(None)
    state = env.reset(key, params)

    def advance(state, key):
      state, outcome = env.step(key, state, jnp.array(1), params)
      return state, (env.observe(state, params), outcome)

    return jax.lax.scan(advance, state, jax.random.split(key, 7))

  many = jax.jit(jax.vmap(play, (0, None)))
  keys = jax.random.split(new_key(4), 3)
  _, (pixels, outcome) = many(keys, params)
  assert pixels.shape == (3, 7, 5, 5, 3)
  assert outcome.reward.shape == (3, 7)
  many(jax.random.split(new_key(5), 3), make_params('public', 'hunt'))
  assert len(traces) == 1
  alone, _ = play(keys[2], params)
  together = jax.tree.map(lambda leaf: leaf[2], many(keys, params)[0])
  jax.tree.map(np.testing.assert_array_equal, alone, together)


def test_states_survive_a_checkpoint(tmp_path):
  env, params = MiniPacman(), make_params()
  keys = jax.random.split(jax.random.key(0), 4)
  games_ = jax.vmap(env.reset, (0, None))(keys, params)
  state = training.TrainState((), (), (), jnp.array(3), keys[0], games_)
  with Checkpointer(tmp_path) as saver:
    saver.save(3, state)
    saver.wait()
    _, restored = saver.restore(jax.eval_shape(lambda: state))
  jax.tree.map(np.testing.assert_array_equal, restored.carry, games_)


@pytest.mark.parametrize(
  'arguments, message',
  [
    ({'preset': 'i2a'}, "preset must be one of paper, public. Got: 'i2a'"),
    ({'mode': 'chase'}, 'mode must be one of regular, avoid'),
    ({'player_squares': 3}, 'player_squares must be 1 or 2. Got: 3'),
    ({'max_steps': 0}, 'max_steps must be at least 1. Got: 0'),
    ({'random_turns': 1.5}, r'random_turns must be in \[0, 1\]. Got: 1.5'),
    ({'ghost_speed': -1.0}, 'ghost_speed must be at least 0 and finite'),
    ({'food_reward': np.nan}, 'food_reward must be finite. Got: nan'),
  ],
)
def test_bad_rules_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    make_params(**arguments)


def test_bad_views_are_refused():
  with pytest.raises(ValueError, match='view must be one of viewport, full'):
    MiniPacman(view='window')
  with pytest.raises(ValueError, match='pixels must be one of rgb, symbolic'):
    MiniPacman(pixels='ascii')


def random_episodes(preset, mode, num_games, seed=0):
  """Returns the returns and lengths of episodes of uniformly random actions."""
  env, params = MiniPacman(), make_params(preset, mode)

  @jax.jit
  def advance(carry, key):
    def one(carry, key):
      state, done, total, length = carry
      action_key, step_key = jax.random.split(key)
      action = jax.random.randint(action_key, (), 0, 5)
      state, outcome = env.step(step_key, state, action, params)
      total += jnp.where(done, 0.0, outcome.reward)
      length += ~done
      done |= outcome.terminated | outcome.truncated
      return state, done, total, length

    def step(carry, key):
      keys = jax.random.split(key, num_games)
      return jax.vmap(one)(carry, keys), None

    return jax.lax.scan(step, carry, jax.random.split(key, 250))[0]

  keys = jax.random.split(jax.random.key(seed), num_games)
  carry = (
    jax.vmap(env.reset, (0, None))(keys, params),
    jnp.zeros(num_games, bool),
    jnp.zeros(num_games),
    jnp.zeros(num_games, jnp.int32),
  )
  for part in range(12):
    carry = advance(carry, jax.random.key(100 + part))
    if carry[1].all():
      break
  assert carry[1].all()
  return np.asarray(carry[2]), np.asarray(carry[3])


# Mean and standard deviation of the return, and the median length, of 1000
# episodes of the public code.
@pytest.mark.slow
@pytest.mark.parametrize(
  'mode, mean, deviation, median',
  [
    ('regular', 9.78, 10.5, 42),
    ('avoid', -16.86, 3.3, 41),
    ('hunt', -19.99, 2.2, 42),
    ('ambush', -20.98, 2.1, 42),
    ('rush', 0.27, 3.3, 42),
  ],
)
def test_random_play_scores_as_in_the_public_code(
  mode, mean, deviation, median
):
  num = 4000
  returns, lengths = random_episodes('public', mode, num)
  error = np.hypot(returns.std() / np.sqrt(num), deviation / np.sqrt(1000))
  assert abs(returns.mean() - mean) < 3 * error
  # Three standard errors of the rank of the median of 1000.
  low, high = np.quantile(
    lengths, 0.5 + 1.5 / np.sqrt(1000) * np.array([-1, 1])
  )
  assert low <= median <= high


# The same of a second program with these rules, by 1500 episodes.
@pytest.mark.slow
@pytest.mark.parametrize(
  'mode, mean, median',
  [
    ('regular', 7.22, 20),
    ('avoid', -18.95, 20),
    ('hunt', -20.10, 20),
    ('ambush', -20.78, 20),
    ('rush', 0.41, 20),
  ],
)
def test_random_play_scores_by_the_papers_rules(mode, mean, median):
  num = 4000
  returns, lengths = random_episodes('paper', mode, num)
  error = np.hypot(1 / np.sqrt(num), 1 / np.sqrt(1500)) * returns.std()
  assert abs(returns.mean() - mean) < 3 * error
  low, high = np.quantile(
    lengths, 0.5 + 1.5 / np.sqrt(1500) * np.array([-1, 1])
  )
  assert low <= median <= high
