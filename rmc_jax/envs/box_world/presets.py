"""The levels and rules of the papers."""

import dataclasses
from typing import Any

from rmc_jax.checks import one_of
from rmc_jax.envs.box_world.types import Params

PRESETS: dict[str, dict[str, Any]] = {
  'paper': {},
  'pycolab': {'max_solution': 4, 'max_distractors': 4, 'max_steps': 121},
  'far2025': {
    'variant': 'far2025',
    'min_solution': 3,
    'max_solution': 3,
    'min_distractors': 1,
    'max_distractors': 1,
    'branch_length': 3,
    'key_reward': 1.0,
    'step_reward': -0.1,
    'collects_content': True,
  },
}


def make_params(preset: str = 'paper', **changes: Any) -> Params:
  """Returns the rules and the range of levels of a preset.

  'paper': Santoro et al. 2018, appendix A.3: 1 to 5 boxes to the gem and 0 to 5
  distractors. The limit of 120 steps is from the description of pycolab's game;
  the papers name none. 'pycolab': the code of Zambaldi et al. 2018, at most 4
  of each, which stops after 121 steps. 'far2025': the game on which planning
  agents were studied, github.com/AlignmentResearch/train-learned-planner: 3
  boxes to the gem and a distractor of 3 boxes, every step costs 0.1.

  Args:
    preset: one of PRESETS.
    **changes: fields of `Params` to replace. `distractor_boxes` grows with
      `branch_length` by itself.

  Raises:
    ValueError: an unknown preset, or a value out of range.
    TypeError: an unknown field.
  """
  one_of('preset', preset, tuple(PRESETS))
  params = Params(**(PRESETS[preset] | changes))
  if 'distractor_boxes' not in changes:
    needed = params.max_distractors * params.branch_length
    boxes = max(needed, params.distractor_boxes)
    params = dataclasses.replace(params, distractor_boxes=boxes)
  params.validate()
  return params
