"""Recurrent cores, one in each module; each is an `hk.RNNCore`."""

from rmc_jax.cores.dnc import DNC
from rmc_jax.cores.entity_network import EntityNetwork
from rmc_jax.cores.lstm import LSTM
from rmc_jax.cores.lstm_bank import LSTMBank
from rmc_jax.cores.paper_relational_memory import PaperMemoryState
from rmc_jax.cores.paper_relational_memory import PaperRelationalMemory
from rmc_jax.cores.projected_core import AttendingCore
from rmc_jax.cores.projected_core import ProjectedCore
from rmc_jax.cores.projected_core import StepTrace
from rmc_jax.cores.relational_memory import RelationalMemory

__all__ = [
  'DNC',
  'LSTM',
  'AttendingCore',
  'EntityNetwork',
  'LSTMBank',
  'PaperMemoryState',
  'PaperRelationalMemory',
  'ProjectedCore',
  'RelationalMemory',
  'StepTrace',
]
