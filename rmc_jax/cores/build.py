"""The one place where a string becomes a core."""

import dataclasses

import haiku as hk

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
  # LSTM.
  hidden_size: int = 2048

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
  if config.hidden_size < 1:
    raise ValueError(f'hidden_size must be >= 1. Got: {config.hidden_size}.')
  return hk.LSTM(config.hidden_size)


_BUILDERS = {
    'relational_memory': _relational_memory,
    'paper_relational_memory': _paper_relational_memory,
    'lstm': _lstm,
}
NAMES = tuple(_BUILDERS)
# Those that have attention weights to look at.
ATTENDING = ('relational_memory', 'paper_relational_memory')
