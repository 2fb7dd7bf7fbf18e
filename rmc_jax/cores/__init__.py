"""Recurrent cores, one a file; each an ordinary `hk.RNNCore`."""

from rmc_jax.cores.paper_relational_memory import PaperMemoryState
from rmc_jax.cores.paper_relational_memory import PaperRelationalMemory
from rmc_jax.cores.projected_core import AttendingCore
from rmc_jax.cores.projected_core import ProjectedCore
from rmc_jax.cores.projected_core import StepTrace
from rmc_jax.cores.relational_memory import RelationalMemory

__all__ = [
    'AttendingCore',
    'PaperMemoryState',
    'PaperRelationalMemory',
    'ProjectedCore',
    'RelationalMemory',
    'StepTrace',
]
