"""State and parameters of Mini Pacman.

G = MAX_GHOSTS, C = 138 corridor cells. A cell is its index in `maze.CELLS`.
"""

import dataclasses
import math

import jax

from rmc_jax.checks import all_hold
from rmc_jax.checks import positive_int
from rmc_jax.types import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Params:
  """The rules, as numbers, so that `jax.vmap` may run over them.

  `presets.make_params` has those of the paper and of the public code.
  """

  # Rewards.
  step_reward: float
  food_reward: float
  pill_reward: float
  ghost_reward: float
  death_reward: float
  # What clears a level. The next one starts at once.
  clears_on_food: bool
  clears_on_pills: bool
  clears_on_ghosts: bool
  level_steps: int  # Limit of steps of a level; 0 for none.
  # Ghosts move with probability (speed + acceleration * (level - 1)), times
  # `powered_speed` while the player is powered.
  ghost_speed: float
  ghost_acceleration: float
  powered_speed: float
  random_turns: float  # of ghosts at junctions, unless the player is powered
  player_squares: int  # in a step, while powered: 1 or 2
  # Colours.
  fading: bool  # Edible ghosts turn red as power ends; else they are yellow.
  power_bar: bool  # Power is shown in the last row.
  max_steps: int = 3000  # of an episode

  def validate(self) -> None:
    """Raises ValueError for a value out of range; not under `jax.jit`."""
    positive_int('level_steps', self.level_steps, least=0)
    positive_int('max_steps', self.max_steps)
    checks = [
      ('player_squares', self.player_squares in (1, 2), '1 or 2'),
      ('random_turns', 0 <= self.random_turns <= 1, 'in [0, 1]'),
    ]
    for name in ('ghost_speed', 'ghost_acceleration', 'powered_speed'):
      value = getattr(self, name)
      checks.append((name, 0 <= value < math.inf, 'at least 0 and finite'))
    for name in ('step', 'food', 'pill', 'ghost', 'death'):
      name += '_reward'
      checks.append((name, math.isfinite(getattr(self, name)), 'finite'))
    all_hold(self, checks)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
  """One game."""

  player: Array  # [] cell
  ghosts: Array  # [G] cells
  directions: Array  # [G] of the ghosts, see `constants.DIRECTIONS`
  alive: Array  # [G] whether the ghost is in the game
  food: Array  # [C] whether the cell has food
  pills: Array  # [2] cells
  has_pill: Array  # [2] whether the pill is there
  power: Array  # [] 0 .. POWER; above 0 the player eats ghosts
  level: Array  # [] 1, 2, ...
  level_step: Array  # [] steps taken in this level
  step: Array  # [] steps taken in this episode


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layout:
  """Where things are when a level starts."""

  player: Array  # [] cell
  pills: Array  # [2] cells
  ghosts: Array  # [G] cells
  directions: Array  # [G]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Draws:
  """The random numbers of one step."""

  layout: Layout  # of a level that starts in this step
  move: Array  # [G] uniform in [0, 1): a ghost moves if it is below its speed
  turn: Array  # [G] uniform: a turn is random if below `random_turns`
  choice: Array  # [G] uniform: the exit of a random turn
