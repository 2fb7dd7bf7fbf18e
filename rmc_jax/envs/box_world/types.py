"""State and parameters of BoxWorld.

I = 1 + MAX_SOLUTION + distractor_boxes. Item 0 is the loose key, then come the
boxes to the gem and those of distractors, branch after branch. Boxes that a
level does not have are empty and open.
"""

import dataclasses
import math

import jax

from rmc_jax.checks import all_hold
from rmc_jax.checks import one_of
from rmc_jax.checks import positive_int
from rmc_jax.envs.box_world.constants import MAX_BOXES
from rmc_jax.envs.box_world.constants import MAX_DISTRACTORS
from rmc_jax.envs.box_world.constants import MAX_SOLUTION
from rmc_jax.envs.box_world.constants import VARIANTS
from rmc_jax.types import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Params:
  """The rules and the levels; `presets.make_params` has defaults.

  Numbers, so that `jax.vmap` may run over them, and two static fields. Lengths
  are uniform in their ranges, bounds included.
  """

  min_solution: int = 1
  max_solution: int = MAX_SOLUTION
  min_distractors: int = 0
  max_distractors: int = MAX_DISTRACTORS
  branch_length: int = 1  # boxes of a distractor
  gem_reward: float = 10.0
  solution_reward: float = 1.0  # for opening such a box
  distractor_reward: float = -1.0  # the same; the episode ends
  key_reward: float = 0.0  # for a key that lies in the room
  step_reward: float = 0.0
  # A box that opens hands over its content at once. That of the gem then gives
  # `gem_reward` in place of `solution_reward`.
  collects_content: bool = False
  max_steps: int = 120  # of an episode
  # 'pycolab' or 'far2025': where boxes may be, and the colours.
  variant: str = dataclasses.field(default='pycolab', metadata={'static': True})
  # The size of the arrays of a state. Each box makes steps slower.
  distractor_boxes: int = dataclasses.field(
    default=MAX_DISTRACTORS, metadata={'static': True}
  )

  def validate(self) -> None:
    """Raises ValueError for a value out of range; not under `jax.jit`."""
    one_of('variant', self.variant, VARIANTS)
    for name in ('min_solution', 'max_solution', 'branch_length', 'max_steps'):
      positive_int(name, getattr(self, name))
    for name in ('min_distractors', 'max_distractors', 'distractor_boxes'):
      positive_int(name, getattr(self, name), least=0)
    boxes = self.max_distractors * self.branch_length
    most = MAX_BOXES[self.variant] - self.max_solution
    checks = [
      (
        'min_solution',
        self.min_solution <= MAX_SOLUTION,
        f'at most {MAX_SOLUTION}',
      ),
      (
        'max_solution',
        self.min_solution <= self.max_solution <= MAX_SOLUTION,
        f'between min_solution and {MAX_SOLUTION}',
      ),
      (
        'max_distractors',
        self.min_distractors <= self.max_distractors <= MAX_DISTRACTORS,
        f'between min_distractors and {MAX_DISTRACTORS}',
      ),
      (
        'branch_length',
        boxes <= most,
        f'at most {most} divided by max_distractors, {self.max_distractors}, '
        'because more boxes do not fit into the room',
      ),
      (
        'distractor_boxes',
        self.distractor_boxes >= boxes,
        f'at least max_distractors * branch_length, {boxes}',
      ),
    ]
    for name in ('gem', 'solution', 'distractor', 'key', 'step'):
      name += '_reward'
      checks.append((name, math.isfinite(getattr(self, name)), 'finite'))
    all_hold(self, checks)


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
