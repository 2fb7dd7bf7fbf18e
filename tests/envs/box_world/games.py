"""Games for the tests, and their form in the reference."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.envs.box_world import BoxWorld
from rmc_jax.envs.box_world import State
from rmc_jax.envs.box_world.constants import GEM
from rmc_jax.envs.box_world.constants import NO_KEY

ACTIONS = ['up', 'down', 'left', 'right', 'stay']


@functools.partial(jax.jit, static_argnums=(2, 3))
def _play(key, params, num_games, num_steps):
  env = BoxWorld(stay=params.variant == 'far2025')

  def advance(states, key):
    actions = jax.random.randint(key, (num_games,), 0, env.num_actions)
    step = jax.vmap(env.step, (None, 0, 0, None))
    next_states, outcomes = step(key, states, actions, params)
    return next_states, (states, actions, outcomes)

  start_key, step_key = jax.random.split(key)
  starts = jax.random.split(start_key, num_games)
  states = jax.vmap(env.reset, (0, None))(starts, params)
  keys = jax.random.split(step_key, num_steps)
  last, (states, *others) = jax.lax.scan(advance, states, keys)
  states = jax.tree.map(
    lambda x, y: jnp.concatenate([x, y[None]]), states, last
  )
  return states, *others


def play(key, params, num_games, num_steps):
  """Plays at random.

  Returns:
    States [steps + 1, games], actions and outcomes [steps, games], as NumPy
    arrays.
  """
  played = _play(key, params, num_games, num_steps)
  return jax.tree.map(np.asarray, played)


@functools.partial(jax.jit, static_argnums=2)
def _draw(key, params, num):
  keys = jax.random.split(key, num)
  return jax.vmap(BoxWorld().reset, (0, None))(keys, params)


def draw_levels(seed, params, num):
  return jax.tree.map(np.array, _draw(jax.random.key(seed), params, num))


def rows(states: State) -> list[list[State]]:
  """Returns states [steps, games] as [games][steps] states of lists."""
  names = [field.name for field in dataclasses.fields(State)]
  columns = [getattr(states, name).swapaxes(0, 1).tolist() for name in names]
  return [
    [State(*step) for step in zip(*game, strict=True)]
    for game in zip(*columns, strict=True)
  ]


def row(tree, *index):
  return jax.tree.map(lambda leaf: leaf[index], tree)


def to_reference(state: State) -> dict:
  """Returns a state of one game in the form of the reference."""
  places = [tuple(map(int, place)) for place in state.place]
  locks = {
    index: (place[0], place[1] + 1)
    for index, place in enumerate(places)
    if state.has_lock[index]
  }
  return {
    'player': tuple(map(int, state.player)),
    'keys': {
      place: 'gem' if content == GEM else int(content)
      for place, content, there in zip(
        places, state.content, state.has_content, strict=True
      )
      if there
    },
    'locks': {place: int(state.lock[index]) for index, place in locks.items()},
    'astray': {
      place for index, place in locks.items() if state.is_distractor[index]
    },
    'held': None if state.held == NO_KEY else int(state.held),
  }
