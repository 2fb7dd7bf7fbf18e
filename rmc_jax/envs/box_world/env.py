"""The game: a step moves the player, who opens a lock or takes a key."""

import dataclasses

import jax.numpy as jnp

from rmc_jax.checks import one_of
from rmc_jax.envs.box_world import generator
from rmc_jax.envs.box_world import observation
from rmc_jax.envs.box_world.constants import ACTIONS
from rmc_jax.envs.box_world.constants import GEM
from rmc_jax.envs.box_world.constants import MOVES
from rmc_jax.envs.box_world.constants import NO_KEY
from rmc_jax.envs.box_world.constants import SIZE
from rmc_jax.envs.box_world.types import Params
from rmc_jax.envs.box_world.types import State
from rmc_jax.envs.types import Outcome
from rmc_jax.types import Array


@dataclasses.dataclass(frozen=True)
class BoxWorld:
  """Finds a gem behind a chain of locks, each opened by the key before it.

  A box is two pixels, its content and to the right of it its lock, of the
  colours of the key inside and of the key that opens it. The player holds one
  key at most.

  All methods are pure functions of one game; use `jax.vmap` for many. A level
  is far more expensive to draw than a step.

  Source: Zambaldi et al. 2018, "Relational deep reinforcement learning", and
  pycolab's box_world; 'viewport' is that of Santoro et al. 2018, appendix A.3.

  Attributes:
    view: 'viewport', 5 x 5 pixels with the player in the centre, or 'full', the
      14 x 14 of the room.
    pixels: 'rgb' or 'symbolic', see `observation`.
  """

  view: str = 'viewport'
  pixels: str = 'rgb'

  def __post_init__(self):
    one_of('view', self.view, observation.VIEWS)
    one_of('pixels', self.pixels, observation.PIXELS)

  @property
  def num_actions(self) -> int:
    """4: up, down, left, right."""
    return len(ACTIONS)

  @property
  def observation_shape(self) -> tuple[int, int, int]:
    """(rows, columns, channels)."""
    return observation.shape(self.view, self.pixels)

  def reset(self, key: Array, params: Params) -> State:
    """Draws a level; consumes the key."""
    return generator.draw_level(key, params)

  def step(
    self, key: Array, state: State, action: Array, params: Params
  ) -> tuple[State, Outcome]:
    """Advances the game.

    Args:
      key: unused: nothing is random after the start.
      state: of the game. One that has ended goes on as if it had not.
      action: [] integer below `num_actions`; others are clipped.
      params: the rules.
    """
    del key
    return step(state, action, params)

  def observe(self, state: State, params: Params) -> Array:
    """Returns what the agent sees, of `observation_shape`."""
    del params  # All rules look alike.
    return observation.observe(state, self.view, self.pixels)


def step(state: State, action: Array, params: Params) -> tuple[State, Outcome]:
  """Moves into a free cell, onto a lock that the key opens, or onto a key.

  A lock vanishes with the key that opens it. The content of a box is out of
  reach until then. A key replaces the one that is held.
  """
  action = jnp.clip(action, 0, len(ACTIONS) - 1)
  target = state.player + jnp.asarray(MOVES)[action]  # [2]
  inside = ((target > 0) & (target < SIZE - 1)).all()
  lock_place = state.place + jnp.array([[0, 1]])
  at_lock = state.has_lock & (lock_place == target[None]).all(-1)  # [I]
  at_content = state.has_content & (state.place == target[None]).all(-1)

  opened = at_lock & (state.lock == state.held)
  taken = at_content & ~state.has_lock
  moves = inside & ((opened | taken).any() | ~(at_lock | at_content).any())
  content = jnp.where(taken, state.content, 0).sum()
  gem = taken.any() & (content == GEM)
  astray = (opened & state.is_distractor).any()
  held = jnp.where(taken.any() & ~gem, content, state.held)
  next_state = dataclasses.replace(
    state,
    player=jnp.where(moves, target, state.player),
    held=jnp.where(opened.any(), NO_KEY, held),
    has_lock=state.has_lock & ~opened,
    has_content=state.has_content & ~taken,
    solved=state.solved | gem,
    step=state.step + 1,
  )
  reward = (
    params.step_reward
    + params.gem_reward * gem
    + params.solution_reward * (opened & ~state.is_distractor).any()
    + params.distractor_reward * astray
  )
  terminated = gem | astray
  outcome = Outcome(
    reward=jnp.asarray(reward, jnp.float32),
    terminated=terminated,
    truncated=~terminated & (next_state.step >= params.max_steps),
  )
  return next_state, outcome
