"""Recurrent actor-critics: rollouts, the IMPALA loss and evaluation."""

from rmc_jax.rl.agent import AgentConfig
from rmc_jax.rl.agent import make_loss_fn
from rmc_jax.rl.curriculum import Curriculum
from rmc_jax.rl.evaluate import play_episodes
from rmc_jax.rl.experiment import make_experiment
from rmc_jax.rl.experiment import make_rollout
from rmc_jax.rl.loss import impala_loss
from rmc_jax.rl.network import check_network
from rmc_jax.rl.network import make_network
from rmc_jax.rl.network import Network
from rmc_jax.rl.rollout import Rollout
from rmc_jax.rl.trajectory import Trajectory
from rmc_jax.rl.vtrace import VTrace
from rmc_jax.rl.vtrace import vtrace

__all__ = [
  'AgentConfig',
  'Curriculum',
  'Network',
  'Rollout',
  'Trajectory',
  'VTrace',
  'check_network',
  'impala_loss',
  'make_experiment',
  'make_loss_fn',
  'make_network',
  'make_rollout',
  'play_episodes',
  'vtrace',
]
