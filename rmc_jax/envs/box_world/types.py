"""State and parameters of BoxWorld.

I = NUM_ITEMS. Item 0 is the loose key, then come MAX_SOLUTION boxes and
MAX_DISTRACTORS boxes; those that a level does not have are empty and open.
"""

import dataclasses
import math

import jax

from rmc_jax.envs.box_world.constants import MAX_DISTRACTORS
from rmc_jax.envs.box_world.constants import MAX_SOLUTION
from rmc_jax.types import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Params:
  """The rules and the levels, as numbers; `presets.make_params` has defaults.

  Lengths are uniform in their ranges, bounds included.
  """

  min_solution: int = 1
  max_solution: int = MAX_SOLUTION
  min_distractors: int = 0
  max_distractors: int = MAX_DISTRACTORS
  gem_reward: float = 10.0
  solution_reward: float = 1.0  # for opening such a box
  distractor_reward: float = -1.0  # the same; the episode ends
  step_reward: float = 0.0
  max_steps: int = 120  # of an episode

  def validate(self) -> None:
    """Raises ValueError for a value out of range; not under `jax.jit`."""
    solution, distractors = self.min_solution, self.min_distractors
    checks = [
      ('min_solution', solution >= 1, 'at least 1'),
      (
        'max_solution',
        solution <= self.max_solution <= MAX_SOLUTION,
        f'between min_solution and {MAX_SOLUTION}',
      ),
      ('min_distractors', distractors >= 0, 'at least 0'),
      (
        'max_distractors',
        distractors <= self.max_distractors <= MAX_DISTRACTORS,
        f'between min_distractors and {MAX_DISTRACTORS}',
      ),
      ('max_steps', self.max_steps >= 1, 'at least 1'),
    ]
    for name in ('gem', 'solution', 'distractor', 'step'):
      name += '_reward'
      checks.append((name, math.isfinite(getattr(self, name)), 'finite'))
    for name, good, expected in checks:
      if not good:
        raise ValueError(
          f'{name} must be {expected}. Got: {getattr(self, name)}.'
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
  """One game."""

  player: Array  # [2] row and column
  held: Array  # [] colour of the key, or NO_KEY
  place: Array  # [I, 2] of the content; the lock is one column to the right
  lock: Array  # [I] colour
  content: Array  # [I] colour of the key, or GEM
  has_lock: Array  # [I] whether it is closed
  has_content: Array  # [I] whether the content is there
  is_distractor: Array  # [I]
  solved: Array  # [] whether the gem has been collected
  step: Array  # [] steps taken in this episode
