"""The one place where a string becomes a core."""

import dataclasses

import haiku as hk

from rmc_jax.cores.dnc import DNC
from rmc_jax.cores.entity_network import EntityNetwork
from rmc_jax.cores.lstm import LSTM
from rmc_jax.cores.lstm_bank import LSTMBank
from rmc_jax.cores.paper_relational_memory import PaperRelationalMemory
from rmc_jax.cores.relational_memory import RelationalMemory


@dataclasses.dataclass
class CoreConfig:
  """The numbers of a core; a core ignores the fields that are not its own.

  Letters as in `rmc_jax.types`. The defaults are 2048 units in 8 slots.
  """

  name: str = 'relational_memory'  # one of NAMES
  # Both relational memories.
  mem_slots: int = 8  # N
  head_size: int = 32  # V
  num_heads: int = 8  # H
  key_size: int | None = None  # K; None: as head_size
  gate_style: str | None = 'unit'  # 'unit', 'memory'; None: no gates
  forget_bias: float = 1.0
  attention_mlp_layers: int = 2
  # RelationalMemory alone.
  num_blocks: int = 1  # L
  input_bias: float = 0.0
  query_scale: str = 'key'  # 'qkv': as dm-sonnet up to 1.26
  # LSTM, and the controller of a DNC.
  hidden_size: int = 2048
  num_layers: int = 1
  # LSTMBank.
  num_cells: int = 4
  total_size: int = 2048  # units of all cells together
  share_weights: bool = False
  summed: str = 'hidden'  # what the output sums over cells; 'cell'
  # EntityNetwork.
  num_slots: int = 20
  slot_size: int = 100
  gate_bias: bool = False
  # DNC.
  memory_size: int = 80
  word_size: int = 64
  num_reads: int = 4
  num_writes: int = 1
  controller: str = 'lstm'  # or 'feed_forward'
  output_size: int | None = None  # None: as hidden_size
  clip_value: float | None = 20.0  # None: not clipped

  def validate(self) -> None:
    """Raises ValueError for what `build_core` would refuse.

    The sizes are checked by building the core, which touches no device: a core
    has no parameters before it sees an input.
    """
    if self.name not in NAMES:
      raise ValueError(
        f'core.name must be one of {", ".join(NAMES)}. Got: {self.name!r}.'
      )
    try:
      hk.transform(lambda: build_core(self) and None).init(None)
    except (TypeError, ValueError) as error:
      raise ValueError(f'core: {error}') from error


def build_core(config: CoreConfig) -> hk.RNNCore:
  """Makes the core that a configuration names, inside an `hk.transform`.

  Raises:
    KeyError: a name that is not in NAMES; `CoreConfig.validate` says it better.
    TypeError, ValueError: the core refuses a size or a style.
  """
  return _BUILDERS[config.name](config)


def _relational_memory(config: CoreConfig) -> hk.RNNCore:
  return RelationalMemory(
    mem_slots=config.mem_slots,
    head_size=config.head_size,
    num_heads=config.num_heads,
    num_blocks=config.num_blocks,
    forget_bias=config.forget_bias,
    input_bias=config.input_bias,
    gate_style=config.gate_style,
    attention_mlp_layers=config.attention_mlp_layers,
    key_size=config.key_size,
    query_scale=config.query_scale,
  )


def _paper_relational_memory(config: CoreConfig) -> hk.RNNCore:
  return PaperRelationalMemory(
    mem_slots=config.mem_slots,
    head_size=config.head_size,
    num_heads=config.num_heads,
    forget_bias=config.forget_bias,
    gate_style=config.gate_style,
    attention_mlp_layers=config.attention_mlp_layers,
    key_size=config.key_size,
  )


def _lstm(config: CoreConfig) -> hk.RNNCore:
  return LSTM(config.hidden_size, config.num_layers)


def _lstm_bank(config: CoreConfig) -> hk.RNNCore:
  return LSTMBank(
    total_size=config.total_size,
    num_cells=config.num_cells,
    share_weights=config.share_weights,
    summed=config.summed,
  )


def _entity_network(config: CoreConfig) -> hk.RNNCore:
  return EntityNetwork(
    num_slots=config.num_slots,
    slot_size=config.slot_size,
    gate_bias=config.gate_bias,
  )


def _dnc(config: CoreConfig) -> hk.RNNCore:
  return DNC(
    memory_size=config.memory_size,
    word_size=config.word_size,
    num_reads=config.num_reads,
    num_writes=config.num_writes,
    controller=config.controller,
    hidden_size=config.hidden_size,
    num_layers=config.num_layers,
    output_size=config.output_size,
    clip_value=config.clip_value,
  )


_BUILDERS = {
  'relational_memory': _relational_memory,
  'paper_relational_memory': _paper_relational_memory,
  'lstm': _lstm,
  'lstm_bank': _lstm_bank,
  'entity_network': _entity_network,
  'dnc': _dnc,
}
NAMES = tuple(_BUILDERS)
# Those that have attention weights to look at.
ATTENDING = ('relational_memory', 'paper_relational_memory')
