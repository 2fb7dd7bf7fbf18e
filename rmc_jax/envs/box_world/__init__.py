"""BoxWorld: Zambaldi et al. 2018, Santoro et al. 2018, appendix A.3."""

from rmc_jax.envs.box_world.env import BoxWorld
from rmc_jax.envs.box_world.presets import make_params
from rmc_jax.envs.box_world.types import Params
from rmc_jax.envs.box_world.types import State

__all__ = ['BoxWorld', 'Params', 'State', 'make_params']
