"""The loss of the IMPALA agent and its targets."""

from rmc_jax.rl.loss import impala_loss
from rmc_jax.rl.vtrace import VTrace
from rmc_jax.rl.vtrace import vtrace

__all__ = ['VTrace', 'impala_loss', 'vtrace']
