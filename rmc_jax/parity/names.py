"""The names of each variable in TensorFlow and in Haiku.

TensorFlow numbers layers of a kind in order of creation, so a name there
depends on every layer before it; our names say what a layer is for. Names here
are relative to the core, without its scope or module path.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
import itertools
import re
from typing import NamedTuple

_SONNET_NAME = re.compile(
  r'linear(_\d+)?/[wb]|layer_norm(_\d+)?/(gamma|beta)|mlp/linear_\d+/[wb]'
)
_HAIKU_NAME = re.compile(
  r'(input|input_gates|memory_gates)/[wb]|attention_\d+/qkv/[wb]'
  r'|attention_\d+/(qkv|attention|mlp)_norm/(scale|offset)'
  r'|mlp/linear_\d+/[wb]'
)


class Structure(NamedTuple):
  """The properties of a core that determine its variables."""

  num_blocks: int
  mlp_layers: int
  gated: bool


def name_table(structure: Structure) -> list[tuple[str, str]]:
  """(TensorFlow name, Haiku name) of each variable, in order of creation."""
  linear, norm = _numbered('linear'), _numbered('layer_norm')
  layers = [(next(linear), 'input')]
  for block in range(structure.num_blocks):
    attention = f'attention_{block}'
    layers += [
      (next(linear), f'{attention}/qkv'),
      (next(norm), f'{attention}/qkv_norm'),
      (next(norm), f'{attention}/attention_norm'),
    ]
    if block == 0:  # one MLP, shared by all blocks
      mlp = [f'mlp/linear_{i}' for i in range(structure.mlp_layers)]
      layers += zip(mlp, mlp, strict=True)
    layers.append((next(norm), f'{attention}/mlp_norm'))
  if structure.gated:
    layers.append((next(linear), 'input_gates'))
    layers.append((next(linear), 'memory_gates'))
  norms, linears = {'gamma': 'scale', 'beta': 'offset'}, {'w': 'w', 'b': 'b'}
  return [
    (f'{sonnet}/{old}', f'{haiku}/{new}')
    for sonnet, haiku in layers
    for old, new in (norms if haiku.endswith('_norm') else linears).items()
  ]


def sonnet_structure(names: Iterable[str]) -> Structure:
  """Infers the structure from TensorFlow names, even if some are missing."""
  names = list(names)
  num_blocks = -(-_count(names, r'layer_norm(?:_(\d+))?/') // 3)
  linears = _count(names, r'linear(?:_(\d+))?/')
  mlp_layers = _count(names, r'mlp/linear_(\d+)/')
  return Structure(num_blocks, mlp_layers, gated=linears > 1 + num_blocks)


def haiku_structure(names: Iterable[str]) -> Structure:
  """Infers the structure from Haiku names, even if some are missing."""
  names = list(names)
  return Structure(
    _count(names, r'attention_(\d+)/'),
    _count(names, r'mlp/linear_(\d+)/'),
    gated=any(re.match('(input|memory)_gates/', name) for name in names),
  )


def sonnet_scopes(names: Iterable[str]) -> list[str]:
  """The scopes that contain linears, layer norms and an MLP."""
  return _scopes(names, _SONNET_NAME, {'linear', 'layer', 'mlp'})


def haiku_paths(names: Iterable[str]) -> list[str]:
  """The module paths that contain attention and an MLP."""
  return _scopes(names, _HAIKU_NAME, {'attention', 'mlp'})


def _scopes(
  names: Iterable[str], pattern: re.Pattern[str], required: set[str]
) -> list[str]:
  """The scopes with a core's names that start with each required word."""
  kinds = collections.defaultdict(set)
  for name in names:
    parts = name.split('/')
    for start in range(len(parts)):
      rest = '/'.join(parts[start:])
      if pattern.fullmatch(rest):  # the longest match
        kinds['/'.join(parts[:start])].add(re.split('[_/]', rest)[0])
        break
  return sorted(scope for scope in kinds if kinds[scope] >= required)


def _count(names: list[str], pattern: str) -> int:
  """One more than the largest number in matching names; 0 for none."""
  matches = [re.match(pattern, name) for name in names]
  return max((int(m.group(1) or 0) + 1 for m in matches if m), default=0)


def _numbered(kind: str) -> Iterator[str]:
  """Yields 'linear', 'linear_1', 'linear_2', ..., as TensorFlow counts."""
  return itertools.chain(
    [kind], (f'{kind}_{number}' for number in itertools.count(1))
  )
