"""The game: a step moves the player, who opens a lock or takes a key."""

import dataclasses

import jax
import jax.numpy as jnp

from rmc_jax.envs.box_world import generator
from rmc_jax.envs.box_world import observation
from rmc_jax.envs.box_world import render
from rmc_jax.envs.box_world.constants import ACTIONS
from rmc_jax.envs.box_world.constants import GEM
from rmc_jax.envs.box_world.constants import MOVES
from rmc_jax.envs.box_world.constants import NO_KEY
from rmc_jax.envs.box_world.constants import SIZE
from rmc_jax.envs.box_world.types import Params
from rmc_jax.envs.box_world.types import State
from rmc_jax.envs.environment import Game
from rmc_jax.envs.types import Outcome
from rmc_jax.types import Array


@dataclasses.dataclass(frozen=True)
class BoxWorld(Game):
  """Finds a gem behind a chain of locks, each opened by the key before it.

  A box is two pixels, its content and to the right of it its lock, of the
  colours of the key inside and of the key that opens it. The player holds one
  key at most.

  A level is far more expensive to draw than a step: see `LevelBank`.

  Source: Zambaldi et al. 2018, "Relational deep reinforcement learning", and
  pycolab's box_world; 'viewport' is that of Santoro et al. 2018, appendix A.3.

  Attributes:
    view: 'viewport', 5 x 5 pixels with the player in the centre, or 'full', the
      14 x 14 of the room.
    pixels: 'rgb' or 'symbolic', see `observation`.
    stay: whether there is a fifth action that does nothing.
    coordinates: whether the cells of 'rgb' have their place in the room, see
      `observation`.
  """

  stay: bool = False
  coordinates: bool = False

  def __post_init__(self):
    super().__post_init__()
    if self.coordinates and self.pixels != 'rgb':
      raise ValueError(
        f"coordinates must be False unless pixels is 'rgb'. Got: True, and "
        f'pixels {self.pixels!r}.'
      )

  @property
  def actions(self) -> tuple[str, ...]:
    """Up, down, left, right; with `stay` also stay."""
    return ACTIONS if self.stay else ACTIONS[:-1]

  @property
  def observation_spec(self) -> jax.ShapeDtypeStruct:
    """(rows, columns, channels); float32 'rgb', int32 'symbolic'."""
    return observation.spec(self.view, self.pixels, self.coordinates)

  @property
  def observation_limit(self) -> int:
    """1, or the last code of 'symbolic'."""
    return 1 if self.pixels == 'rgb' else observation.NUM_CODES - 1

  def reset(self, key: Array, params: Params) -> State:
    """Draws a level; consumes the key."""
    return generator.draw_level(key, params)

  def step(
    self, key: Array, state: State, action: Array, params: Params
  ) -> tuple[State, Outcome]:
    """Advances the game. Nothing is random. See `Environment.step`."""
    del key
    action = jnp.clip(action, 0, self.num_actions - 1)
    return step(state, action, params)

  def observe(self, state: State, params: Params) -> Array:
    """Returns what the agent sees, see `observation.observe`."""
    return observation.observe(
      state, params, self.view, self.pixels, self.coordinates
    )

  def text(self, state: State) -> str:
    """Returns the room as text, see `render.text`."""
    return render.text(state)


def step(state: State, action: Array, params: Params) -> tuple[State, Outcome]:
  """Moves into a free cell, onto a lock that the key opens, or onto a key.

  A lock vanishes with the key that opens it. The content of a box is out of
  reach until then. A key replaces the one that is held.
  """
  target = state.player + jnp.asarray(MOVES)[action]  # [2]
  inside = ((target > 0) & (target < SIZE - 1)).all()
  lock_place = state.place + jnp.array([[0, 1]])
  at_lock = state.has_lock & (lock_place == target[None]).all(-1)  # [I]
  at_content = state.has_content & (state.place == target[None]).all(-1)

  opened = at_lock & (state.lock == state.held)
  taken = at_content & ~state.has_lock
  moves = inside & ((opened | taken).any() | ~(at_lock | at_content).any())
  collected = taken | opened & params.collects_content
  content = jnp.where(collected, state.content, 0).sum()
  gem = collected.any() & (content == GEM)
  opened_distractor = (opened & state.is_distractor).any()
  held = jnp.where(opened.any(), NO_KEY, state.held)
  next_state = dataclasses.replace(
    state,
    player=jnp.where(moves, target, state.player),
    held=jnp.where(collected.any() & ~gem, content, held),
    has_lock=state.has_lock & ~opened,
    has_content=state.has_content & ~collected,
    solved=state.solved | gem,
    step=state.step + 1,
  )
  reward = (
    params.step_reward
    + params.gem_reward * gem
    + params.key_reward * (taken.any() & ~gem)
    + params.solution_reward * ((opened & ~state.is_distractor).any() & ~gem)
    + params.distractor_reward * opened_distractor
  )
  terminated = gem | opened_distractor
  outcome = Outcome(
    reward=jnp.asarray(reward, jnp.float32),
    terminated=terminated,
    truncated=~terminated & (next_state.step >= params.max_steps),
  )
  return next_state, outcome
