"""Games for the tests: random states, and their form in the reference."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.envs.mini_pacman import env as lib
from rmc_jax.envs.mini_pacman import level as level_lib
from rmc_jax.envs.mini_pacman import make_params
from rmc_jax.envs.mini_pacman import maze
from rmc_jax.envs.mini_pacman.types import State
from tests.reference import mini_pacman as reference

PLACES = [tuple(map(int, cell)) for cell in maze.CELLS]
ACTIONS = ['stay', *reference.ORDER]
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


def random_state(key):
  """A state with anything from none to all of the food, pills and ghosts.

  Random play alone would hardly ever end a level.
  """
  keys = jax.random.split(key, 11)
  level = jax.random.randint(keys[0], (), 1, 19)
  start = level_lib.start_level(
    level, level_lib.draw_layout(keys[1]), jnp.zeros((), jnp.int32)
  )
  share = jax.random.choice(keys[2], jnp.array([0.0, 0.02, 0.5, 1.0]))
  food = jax.random.bernoulli(keys[6], share, start.food.shape)
  near = jax.random.bernoulli(keys[3], 0.5, start.ghosts.shape)
  close = jnp.asarray(maze.NEXT_CELL)[start.player]  # [5]
  close = jnp.asarray(maze.NEXT_CELL)[close].reshape(-1)  # [25]
  return dataclasses.replace(
    start,
    ghosts=jnp.where(
      near, jax.random.choice(keys[4], close, start.ghosts.shape), start.ghosts
    ),
    alive=start.alive & jax.random.bernoulli(keys[5], 0.5, start.alive.shape),
    # Without other food, some in a corridor next to the player.
    food=food.at[close[1]].set(True),
    pills=jnp.where(
      jax.random.bernoulli(keys[9], 0.3, (2,)), close[1:3], start.pills
    ),
    has_pill=jax.random.bernoulli(keys[7], 0.7, (2,)),
    power=jax.random.choice(keys[8], jnp.array([0, 1, 2, 20])),
    level_step=jax.random.choice(keys[10], jnp.array([0, 79, 80, 128])),
  )


@functools.partial(jax.jit, static_argnums=(2, 3))
def _play(key, params, num_games, num_steps):
  def advance(states, key):
    action_key, draw_key = jax.random.split(key)
    actions = jax.random.randint(action_key, (num_games,), 0, 5)
    draws = jax.vmap(lib.draw)(jax.random.split(draw_key, num_games))
    step = jax.vmap(lib.step, (0, 0, 0, None))
    next_states, outcomes = step(draws, states, actions, params)
    return next_states, (states, actions, draws, outcomes)

  start_key, step_key = jax.random.split(key)
  states = jax.vmap(random_state)(jax.random.split(start_key, num_games))
  keys = jax.random.split(step_key, num_steps)
  last, (states, *others) = jax.lax.scan(advance, states, keys)
  states = jax.tree.map(
    lambda x, y: jnp.concatenate([x, y[None]]), states, last
  )
  return states, *others


def play(key, params, num_games, num_steps):
  """Plays at random, from random states.

  Returns:
    States [steps + 1, games], actions, draws and outcomes [steps, games], as
    NumPy arrays.
  """
  played = _play(key, params, num_games, num_steps)
  return jax.tree.map(np.asarray, played)


def row(tree, *index):
  return jax.tree.map(lambda leaf: leaf[index], tree)


def to_reference(state: State) -> dict:
  """Returns a state of one game in the form of the reference."""
  cells = zip(state.pills, state.has_pill, strict=True)
  return {
    'player': PLACES[state.player],
    'ghosts': [
      {
        'place': PLACES[cell],
        'direction': reference.ORDER[direction],
        'alive': bool(alive),
      }
      for cell, direction, alive in zip(
        state.ghosts, state.directions, state.alive, strict=True
      )
    ],
    'food': {PLACES[cell] for cell in np.flatnonzero(state.food)},
    'pills': [{'place': PLACES[cell], 'there': bool(x)} for cell, x in cells],
    'power': int(state.power),
    'level': int(state.level),
    'level_step': int(state.level_step),
    'step': int(state.step),
  }


def draws_to_reference(draws) -> dict:
  layout = draws.layout
  return {
    'layout': {
      'player': PLACES[layout.player],
      'pills': [PLACES[cell] for cell in layout.pills],
      'ghosts': [PLACES[cell] for cell in layout.ghosts],
      'directions': [reference.ORDER[d] for d in layout.directions],
    },
    'move': draws.move.tolist(),
    'turn': draws.turn.tolist(),
    'choice': draws.choice.tolist(),
  }
