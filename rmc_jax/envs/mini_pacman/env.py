"""The game: a step advances the clock, then the player, then the ghosts."""

import dataclasses

import jax
import jax.numpy as jnp

from rmc_jax.envs.environment import Game
from rmc_jax.envs.environment import select
from rmc_jax.envs.mini_pacman import constants
from rmc_jax.envs.mini_pacman import ghosts as ghosts_lib
from rmc_jax.envs.mini_pacman import level as level_lib
from rmc_jax.envs.mini_pacman import maze
from rmc_jax.envs.mini_pacman import observation
from rmc_jax.envs.mini_pacman import render
from rmc_jax.envs.mini_pacman.types import Draws
from rmc_jax.envs.mini_pacman.types import Layout
from rmc_jax.envs.mini_pacman.types import Params
from rmc_jax.envs.mini_pacman.types import State
from rmc_jax.envs.types import Outcome
from rmc_jax.types import Array


@dataclasses.dataclass(frozen=True)
class MiniPacman(Game):
  """Collects food in a maze while ghosts chase, or flee from, the player.

  Source: Racanière et al. 2017, "Imagination-augmented agents", section 5, and
  the code released for a workshop; 'viewport' is that of Santoro et al. 2018,
  section 4.2. docs/environments.md lists our readings.

  Attributes:
    view: 'viewport', 5 x 5 cells with the player in the centre, or 'full', the
      15 x 19 of the maze.
    pixels: 'rgb' or 'symbolic', see `observation`.
  """

  @property
  def actions(self) -> tuple[str, ...]:
    """Stay, right, up, left, down."""
    return constants.ACTIONS

  @property
  def observation_spec(self) -> jax.ShapeDtypeStruct:
    """(rows, columns, channels), float32."""
    return observation.spec(self.view, self.pixels)

  @property
  def observation_limit(self) -> int:
    """1, also in symbolic observations."""
    return 1

  def reset(self, key: Array, params: Params) -> State:
    """Returns the start of level 1; consumes the key."""
    del params  # All rules start levels alike.
    zero = jnp.zeros((), jnp.int32)
    return level_lib.start_level(zero + 1, level_lib.draw_layout(key), zero)

  def step(
    self, key: Array, state: State, action: Array, params: Params
  ) -> tuple[State, Outcome]:
    """Advances the game; consumes the key. See `Environment.step`."""
    return step(draw(key), state, action, params)

  def observe(self, state: State, params: Params) -> Array:
    """Returns what the agent sees, see `observation.observe`."""
    return observation.observe(state, params, self.view, self.pixels)

  def text(self, state: State) -> str:
    """Returns the maze as text, see `render.text`."""
    return render.text(state)


def draw(key: Array) -> Draws:
  """Draws the random numbers of one step."""
  # One key for each purpose, so that switching off one kind of randomness
  # leaves the others unchanged.
  layout_key, move_key, turn_key, choice_key = jax.random.split(key, 4)
  shape = (constants.MAX_GHOSTS,)
  return Draws(
    layout=level_lib.draw_layout(layout_key),
    move=jax.random.uniform(move_key, shape),
    turn=jax.random.uniform(turn_key, shape),
    choice=jax.random.uniform(choice_key, shape),
  )


def step(
  draws: Draws, state: State, action: Array, params: Params
) -> tuple[State, Outcome]:
  """Returns the next state, given the random numbers of the step.

  Two levels that start in one step have the same layout. This happens only if a
  time-out starts a level and the same step clears it.
  """
  layout = draws.layout
  due = (params.level_steps > 0) & (state.level_step >= params.level_steps)
  state = advance_clock(_next_level_if(due, state, layout))
  powered = state.power > 0
  state, reward, started = move_player(state, action, layout, params)
  # The second square of a powered player, unless the first began a level or a
  # wall is in the way.
  is_open = _target(state, action) != state.player
  runs = powered & (params.player_squares > 1) & ~started & is_open
  second, second_reward, ate = move_to_second_square(
    state, action, layout, params
  )
  state = select(runs, second, state)
  reward += jnp.where(runs, second_reward, 0.0)
  state, ghost_reward, died = move_ghosts(state, draws, params, ~(runs & ate))
  reward += params.step_reward + ghost_reward
  outcome = Outcome(
    reward=jnp.asarray(reward, jnp.float32),
    terminated=died,
    truncated=~died & (state.step >= params.max_steps),
  )
  return state, outcome


def advance_clock(state: State) -> State:
  """Counts the step and decrements the power."""
  return dataclasses.replace(
    state,
    power=jnp.maximum(state.power - 1, 0),
    level_step=state.level_step + 1,
    step=state.step + 1,
  )


def move_player(
  state: State, action: Array, layout: Layout, params: Params
) -> tuple[State, Array, Array]:
  """Moves by one square and eats what is there.

  Returns:
    The state, the reward, and whether a level started.
  """
  player = _target(state, action)
  has_food = state.food[player]
  food = state.food & (jnp.arange(maze.NUM_CELLS) != player)
  state = dataclasses.replace(state, player=player, food=food)
  by_food = has_food & params.clears_on_food & ~food.any()
  state = _next_level_if(by_food, state, layout)

  # At the player's cell in the new level, if one started.
  taken = _first(state.has_pill & (state.pills == state.player))
  has_pill = state.has_pill & ~taken
  power = jnp.where(taken.any(), constants.POWER, state.power)
  state = dataclasses.replace(state, has_pill=has_pill, power=power)
  by_pill = taken.any() & params.clears_on_pills & ~has_pill.any()
  state = _next_level_if(by_pill, state, layout)
  reward = params.food_reward * has_food + params.pill_reward * taken.any()
  return state, reward, by_food | by_pill


def move_to_second_square(
  state: State, action: Array, layout: Layout, params: Params
) -> tuple[State, Array, Array]:
  """Eats a ghost on the first square, if any, then moves to the second.

  Returns:
    The state, the reward, and whether a ghost was eaten.
  """
  met = _first(state.alive & (state.ghosts == state.player))
  state, reward, started = eat_ghost(state, met, layout, params)
  moved, move_reward, _ = move_player(state, action, layout, params)
  state = select(started, state, moved)
  return state, reward + jnp.where(started, 0.0, move_reward), met.any()


def move_ghosts(
  state: State, draws: Draws, params: Params, active: Array
) -> tuple[State, Array, Array]:
  """Moves one ghost after another, until one meets the player.

  A ghost that the player ran into does not move. One at most is eaten in a
  step, and those after it stay where they are.

  Returns:
    The state, the reward, and whether the player died.
  """
  powered = state.power > 0
  speed = params.ghost_speed + params.ghost_acceleration * (state.level - 1)
  speed *= jnp.where(powered, params.powered_speed, 1.0)
  met = state.alive & (state.ghosts == state.player)  # [G]
  moves = state.alive & ~met & (draws.move < speed)
  directions = ghosts_lib.turn(
    state.ghosts,
    state.directions,
    state.player,
    powered,
    draws.turn < params.random_turns,
    draws.choice,
  )
  cells = jnp.asarray(maze.NEXT_CELL)[state.ghosts, directions + 1]
  meets = met | moves & (cells == state.player)
  acts = active & (jnp.cumsum(meets) - meets == 0)  # None before it has met.
  moves &= acts
  state = dataclasses.replace(
    state,
    ghosts=jnp.where(moves, cells, state.ghosts),
    directions=jnp.where(moves, directions, state.directions),
  )
  meets &= acts
  died = meets.any() & ~powered
  state, reward, _ = eat_ghost(state, meets & powered, draws.layout, params)
  return state, reward + params.death_reward * died, died


def eat_ghost(
  state: State, eaten: Array, layout: Layout, params: Params
) -> tuple[State, Array, Array]:
  """Removes a ghost, or none: `eaten` is [G] with at most one True.

  Returns:
    The state, the reward, and whether a level started.
  """
  alive = state.alive & ~eaten
  cleared = eaten.any() & params.clears_on_ghosts & ~alive.any()
  state = dataclasses.replace(state, alive=alive)
  reward = params.ghost_reward * eaten.any()
  return _next_level_if(cleared, state, layout), reward, cleared


def _target(state: State, action: Array) -> Array:
  """Returns the cell [] that the player would move to."""
  action = jnp.clip(action, 0, len(constants.ACTIONS) - 1)
  return jnp.asarray(maze.NEXT_CELL)[state.player, action]


def _next_level_if(condition: Array, state: State, layout: Layout) -> State:
  fresh = level_lib.start_level(state.level + 1, layout, state.step)
  return select(condition, fresh, state)


def _first(flags: Array) -> Array:
  """Returns the flags with only the first True left."""
  return flags & (jnp.cumsum(flags) == 1)
