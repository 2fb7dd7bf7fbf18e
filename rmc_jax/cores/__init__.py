"""Recurrent cores, one in each module; each is an `hk.RNNCore`."""

from rmc_jax.cores.conv_lstm import ConvLSTM
from rmc_jax.cores.dnc import DNC
from rmc_jax.cores.drc import DRC
from rmc_jax.cores.entity_network import EntityNetwork
from rmc_jax.cores.lstm import LSTM
from rmc_jax.cores.lstm_bank import LSTMBank
from rmc_jax.cores.paper_relational_memory import PaperMemoryState
from rmc_jax.cores.paper_relational_memory import PaperRelationalMemory
from rmc_jax.cores.projected_core import AttendingCore
from rmc_jax.cores.projected_core import ProjectedCore
from rmc_jax.cores.projected_core import StepTrace
from rmc_jax.cores.relational_memory import RelationalMemory
from rmc_jax.cores.spatial_core import SpatialCore

__all__ = [
  'DNC',
  'DRC',
  'LSTM',
  'AttendingCore',
  'ConvLSTM',
  'EntityNetwork',
  'LSTMBank',
  'PaperMemoryState',
  'PaperRelationalMemory',
  'ProjectedCore',
  'RelationalMemory',
  'SpatialCore',
  'StepTrace',
]
