"""The levels of the papers."""

from typing import Any

from rmc_jax.checks import one_of
from rmc_jax.envs.box_world.types import Params

PRESETS: dict[str, dict[str, int]] = {
  'paper': {},
  'pycolab': {'max_solution': 4, 'max_distractors': 4, 'max_steps': 121},
}


def make_params(preset: str = 'paper', **changes: Any) -> Params:
  """Returns the rules and the range of levels of a preset.

  'paper': Santoro et al. 2018, appendix A.3: 1 to 5 boxes to the gem and 0 to 5
  distractors. The limit of 120 steps is from the description of pycolab's game;
  the papers name none. 'pycolab': the code of Zambaldi et al. 2018, at most 4
  of each, which stops after 121 steps.

  Args:
    preset: one of PRESETS.
    **changes: fields of `Params` to replace.

  Raises:
    ValueError: an unknown preset, or a value out of range.
    TypeError: an unknown field.
  """
  one_of('preset', preset, tuple(PRESETS))
  params = Params(**(PRESETS[preset] | changes))
  params.validate()
  return params
