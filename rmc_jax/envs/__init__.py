"""Games as pure functions, for `jax.vmap`, `jax.jit` and `jax.lax.scan`."""

from rmc_jax.envs.environment import Environment
from rmc_jax.envs.registry import make
from rmc_jax.envs.types import Outcome
from rmc_jax.envs.wrappers.auto_reset import AutoReset
from rmc_jax.envs.wrappers.episode_statistics import EpisodeStatistics
from rmc_jax.envs.wrappers.frame_stack import FrameStack
from rmc_jax.envs.wrappers.level_bank import LevelBank

__all__ = [
  'AutoReset',
  'Environment',
  'EpisodeStatistics',
  'FrameStack',
  'LevelBank',
  'Outcome',
  'make',
]
