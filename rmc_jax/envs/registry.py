"""Environments by name."""

from typing import Any

from rmc_jax.checks import one_of
from rmc_jax.envs import box_world
from rmc_jax.envs import mini_pacman
from rmc_jax.envs.environment import Game

NAMES = ('box_world', 'mini_pacman')


def make(
  name: str,
  preset: str = 'paper',
  *,
  view: str = 'viewport',
  pixels: str = 'rgb',
  **changes: Any,
) -> tuple[Game, Any]:
  """Returns a game and its parameters.

    env, params = make('mini_pacman', mode='hunt')
    env, params = make('box_world', 'far2025', view='full')

  Args:
    name: one of NAMES.
    preset: of the rules, see `make_params` of the game.
    view: 'viewport', the 5 x 5 cells around the player, or 'full'.
    pixels: 'rgb' or 'symbolic'.
    **changes: further arguments of `make_params`, and `coordinates` of
      `BoxWorld`.

  Raises:
    ValueError: an unknown name, or what `make_params` refuses.
    TypeError: an unknown parameter.
  """
  one_of('name', name, NAMES)
  if name == 'mini_pacman':
    params = mini_pacman.make_params(preset, **changes)
    return mini_pacman.MiniPacman(view, pixels), params
  coordinates = changes.pop('coordinates', False)
  params = box_world.make_params(preset, **changes)
  stay = params.variant == 'far2025'
  return box_world.BoxWorld(view, pixels, stay, coordinates), params
