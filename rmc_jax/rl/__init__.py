"""Targets of the IMPALA agent."""

from rmc_jax.rl.vtrace import VTrace
from rmc_jax.rl.vtrace import vtrace

__all__ = ['VTrace', 'vtrace']
