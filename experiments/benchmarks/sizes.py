"""The sizes of the core that benchmarks measure, by name."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Size:
  """A core and a batch of sequences."""

  steps: int  # T, the length of the sequences
  batch: int  # B, on a CPU
  features: int  # X, the width of an input
  mem_slots: int  # N
  head_size: int  # V
  num_heads: int  # H
  source: str  # of these numbers
  key_size: int | None = None  # K; None means V
  gate_style: str = 'unit'  # or 'memory'
  mlp_layers: int = 2  # of the MLP after the attention
  gpu_batch: int | None = None  # B on a GPU; None means `batch`

  @property
  def slot_width(self) -> int:
    """D."""
    return self.head_size * self.num_heads

  @property
  def state_size(self) -> int:
    """N * D, also the units of an LSTM with a state of the same size."""
    return self.mem_slots * self.slot_width

  @property
  def key_width(self) -> int:
    """K."""
    return self.key_size or self.head_size

  @property
  def qkv_width(self) -> int:
    """F, the width of query, key and value of all heads."""
    return self.num_heads * (2 * self.key_width + self.head_size)

  @property
  def gate_width(self) -> int:
    """2 * G, the width of input and forget gate."""
    return 2 * (self.slot_width if self.gate_style == 'unit' else 1)

  def arguments(self) -> dict[str, Any]:
    """Returns the arguments of the core, which Sonnet names alike."""
    return {
      'mem_slots': self.mem_slots,
      'head_size': self.head_size,
      'num_heads': self.num_heads,
      'key_size': self.key_size,
      'gate_style': self.gate_style,
      'attention_mlp_layers': self.mlp_layers,
    }

  def on(self, device: str) -> 'Size':
    """Returns the size with the batch of 'cpu' or 'gpu'."""
    gpu_batch = self.gpu_batch if device == 'gpu' else None
    return dataclasses.replace(self, batch=gpu_batch or self.batch)

  def text(self) -> str:
    """Returns e.g. 'T=8 B=200, 8 x 256'."""
    slots = f'{self.mem_slots} x {self.slot_width}'
    return f'T={self.steps} B={self.batch}, {slots}'


_NTH_FARTHEST = Size(
  steps=8, batch=200, gpu_batch=1600, features=40, mem_slots=8, head_size=32,
  num_heads=8,
  source='Santoro et al. 2018, A.1; the CPU gets an eighth of the batch',
)  # fmt: skip
_PROGRAM_EVALUATION = Size(
  steps=67, batch=128, features=45, mem_slots=4, head_size=64, num_heads=4,
  gate_style='memory',
  source='Santoro et al. 2018, A.2: 57 characters in and 10 out',
)  # fmt: skip
_LANGUAGE_MODEL_SMALL = Size(
  steps=35, batch=16, features=192, mem_slots=1, head_size=192, num_heads=4,
  key_size=64, mlp_layers=3,
  source='the best WikiText-2 model of the public PyTorch port',
)  # fmt: skip
_LANGUAGE_MODEL_PAPER = Size(
  steps=100, batch=64, features=512, mem_slots=1, head_size=625, num_heads=4,
  mlp_layers=5,
  source='Santoro et al. 2018, A.4; the batch of one device',
)  # fmt: skip
_AGENT = Size(
  steps=40, batch=32, features=650, mem_slots=4, head_size=64, num_heads=4,
  gate_style='memory',
  source='Santoro et al. 2018, A.3: BoxWorld, 5 x 5 x 26 after convolutions',
)  # fmt: skip

_replace = dataclasses.replace
SIZES = {
  'nth_farthest': _NTH_FARTHEST,
  'nth_farthest_16x128': _replace(_NTH_FARTHEST, mem_slots=16, head_size=16),
  'nth_farthest_1x2048': _replace(_NTH_FARTHEST, mem_slots=1, head_size=256),
  'program_evaluation': _PROGRAM_EVALUATION,
  'language_model_small_16': _LANGUAGE_MODEL_SMALL,
  'language_model_small_64': _replace(_LANGUAGE_MODEL_SMALL, batch=64),
  'language_model_paper': _LANGUAGE_MODEL_PAPER,
  'agent': _AGENT,
  # The core of the agent on sequences of other lengths.
  **{f'steps_{n}': _replace(_AGENT, steps=n) for n in (8, 32, 128, 512)},
}
