"""The five modes, by the rules of the paper and of the public code."""

import dataclasses
from typing import Any

from rmc_jax.checks import one_of
from rmc_jax.envs.mini_pacman.types import Params

PRESETS = ('paper', 'public')

_NEVER = {
  'clears_on_food': False,
  'clears_on_pills': False,
  'clears_on_ghosts': False,
  'level_steps': 0,
}
# Rewards, and what clears a level, as in the public code.
MODES: dict[str, dict[str, Any]] = {
  'regular': _NEVER
  | {
    'step_reward': 0.0,
    'food_reward': 1.0,
    'pill_reward': 2.0,
    'ghost_reward': 5.0,
    'death_reward': 0.0,
    'clears_on_food': True,
  },
  'avoid': _NEVER
  | {
    'step_reward': 0.1,
    'food_reward': -0.1,
    'pill_reward': -5.0,
    'ghost_reward': -10.0,
    'death_reward': -20.0,
    'level_steps': 128,
  },
  'hunt': _NEVER
  | {
    'step_reward': 0.0,
    'food_reward': 0.0,
    'pill_reward': 1.0,
    'ghost_reward': 10.0,
    'death_reward': -20.0,
    'clears_on_ghosts': True,
  },
  'ambush': _NEVER
  | {
    'step_reward': 0.0,
    'food_reward': -0.1,
    'pill_reward': 0.0,
    'ghost_reward': 10.0,
    'death_reward': -20.0,
    'clears_on_ghosts': True,
  },
  'rush': _NEVER
  | {
    'step_reward': 0.0,
    'food_reward': -0.1,
    'pill_reward': 10.0,
    'ghost_reward': 0.0,
    'death_reward': 0.0,
    'clears_on_pills': True,
  },
}


def make_params(
  preset: str = 'paper', mode: str = 'regular', **changes: Any
) -> Params:
  """Returns the rules of a preset and mode.

  'paper': Racanière et al. 2017, as far as known: see docs/environments.md.
  Ghosts always move, a powered player moves two squares, hunt and ambush end
  after 80 steps. 'public': the code released for a workshop in 2017. Ghosts are
  slower in the first levels and while the player is powered, and one in twenty
  of their turns at junctions is random. Which of the two Santoro et al. 2018
  used is not known.

  Args:
    preset: one of PRESETS.
    mode: one of MODES.
    **changes: fields of `Params` to replace.

  Raises:
    ValueError: an unknown preset or mode, or a value out of range.
    TypeError: an unknown field.
  """
  one_of('preset', preset, PRESETS)
  one_of('mode', mode, MODES)
  rules = MODES[mode]
  if preset == 'paper':
    if mode in ('hunt', 'ambush'):
      rules = rules | {'level_steps': 80}
    rules = rules | {
      'ghost_speed': 1.0,
      'ghost_acceleration': 0.0,
      'powered_speed': 1.0,
      'random_turns': 0.0,
      'player_squares': 2,
      'fading': False,
      'power_bar': True,
    }
  else:
    if mode == 'avoid':
      rules = rules | {'clears_on_food': True}
    rules = rules | {
      'ghost_speed': 0.5,
      'ghost_acceleration': 0.1,
      'powered_speed': 0.5,
      'random_turns': 0.05,
      'player_squares': 1,
      'fading': True,
      'power_bar': False,
    }
  params = dataclasses.replace(Params(**rules), **changes)
  params.validate()
  return params
