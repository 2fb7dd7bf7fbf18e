"""Builds a core from its configuration."""

import dataclasses

import haiku as hk
import jmp

from rmc_jax.checks import one_of
from rmc_jax.cores.config import CoreConfig
from rmc_jax.cores.conv_lstm import ConvLSTM
from rmc_jax.cores.conv_lstm import ConvLSTMConfig
from rmc_jax.cores.dnc import DNC
from rmc_jax.cores.dnc import DNCConfig
from rmc_jax.cores.drc import DRC
from rmc_jax.cores.drc import DRCConfig
from rmc_jax.cores.entity_network import EntityNetwork
from rmc_jax.cores.entity_network import EntityNetworkConfig
from rmc_jax.cores.lstm import LSTM
from rmc_jax.cores.lstm import LSTMConfig
from rmc_jax.cores.lstm_bank import LSTMBank
from rmc_jax.cores.lstm_bank import LSTMBankConfig
from rmc_jax.cores.paper_relational_memory import PaperRelationalMemory
from rmc_jax.cores.paper_relational_memory import PaperRelationalMemoryConfig
from rmc_jax.cores.projected_core import AttendingCore
from rmc_jax.cores.projected_core import ProjectedCore
from rmc_jax.cores.relational_memory import RelationalMemory
from rmc_jax.cores.relational_memory import RelationalMemoryConfig
from rmc_jax.cores.spatial_core import SpatialCore

CORES: dict[str, tuple[type[CoreConfig], type[ProjectedCore]]] = {
  'relational_memory': (RelationalMemoryConfig, RelationalMemory),
  'paper_relational_memory': (
    PaperRelationalMemoryConfig,
    PaperRelationalMemory,
  ),
  'lstm': (LSTMConfig, LSTM),
  'lstm_bank': (LSTMBankConfig, LSTMBank),
  'entity_network': (EntityNetworkConfig, EntityNetwork),
  'dnc': (DNCConfig, DNC),
  'conv_lstm': (ConvLSTMConfig, ConvLSTM),
  'drc': (DRCConfig, DRC),
}
# The cores with attention weights to record.
ATTENDING = tuple(
  name for name, (_, core) in CORES.items() if issubclass(core, AttendingCore)
)

# The cores whose inputs are images.
SPATIAL = tuple(
  name for name, (_, core) in CORES.items() if issubclass(core, SpatialCore)
)

COMPUTE_DTYPES = ('float32', 'bfloat16')


def build_core(config: CoreConfig) -> ProjectedCore:
  """Builds the core of a configuration, inside an `hk.transform`.

  Raises:
    KeyError: the name is not in CORES.
    TypeError, ValueError: the core refuses an argument, or the compute dtype is
      not one of COMPUTE_DTYPES.
  """
  _, core = CORES[config.name]
  arguments = {
    name: getattr(config, name) for name in argument_names(type(config))
  }
  dtype = one_of('compute_dtype', config.compute_dtype, COMPUTE_DTYPES)
  if dtype == 'float32':
    return core(**arguments)  # perhaps under a policy of the caller
  policy = jmp.get_policy(f'params=float32,compute={dtype},output=float32')
  with hk.mixed_precision.push_policy(core, policy):
    return core(**arguments)


def argument_names(config_class: type[CoreConfig]) -> list[str]:
  """Lists the constructor arguments that a configuration holds."""
  own = {field.name for field in dataclasses.fields(CoreConfig)}
  names = [field.name for field in dataclasses.fields(config_class)]
  return [name for name in names if name not in own]


def validate(config: CoreConfig) -> None:
  """Raises ValueError if `build_core` would refuse the configuration.

  Builds the core, which allocates nothing on a device: a core has no parameters
  before it sees an input.
  """
  expected, _ = CORES.get(config.name, (None, None))
  if type(config) is not expected:
    raise ValueError(
      f'core.name must be one of {", ".join(CORES)}, and that of its '
      f'configuration. Got: {config.name!r} in a {type(config).__name__}.'
    )
  try:
    hk.transform(lambda: build_core(config) and None).init(None)
  except (TypeError, ValueError) as error:
    raise ValueError(f'core: {error}') from error
