"""Mini Pacman: Racanière et al. 2017, Santoro et al. 2018, section 4.2."""

from rmc_jax.envs.mini_pacman.env import MiniPacman
from rmc_jax.envs.mini_pacman.presets import make_params
from rmc_jax.envs.mini_pacman.types import Params
from rmc_jax.envs.mini_pacman.types import State

__all__ = ['MiniPacman', 'Params', 'State', 'make_params']
