"""The inputs and weights of `unroll`, and the comparison of results."""

from collections.abc import Mapping
import pathlib
from typing import Any

import numpy as np

from experiments.benchmarks.sizes import Size
from rmc_jax.parity import convert
from rmc_jax.parity import names

# Largest difference allowed, as a fraction of the largest entry of the outputs,
# of the loss or of the gradients. Rounding errors of one number (6e-8, 5e-4,
# 4e-3) grow over the steps of an unroll: 5e-5 has been seen in float32. A layer
# norm over the wrong axis, a missing bias or another scale of the queries
# changes a hundredth or more.
TOLERANCE = {'float32': 1e-3, 'tf32': 2e-2, 'bfloat16': 5e-2}


def make_arrays(size: Size, seed: int = 0) -> dict[str, Any]:
  """Makes inputs, the original's initial state, and weights.

  Returns:
    `inputs` [T, B, features], `state` [B, N, D] and, by the original's names,
    `weights`; all in float32.
  """
  rng = np.random.default_rng(seed)
  width, keys = size.slot_width, size.key_size or size.head_size
  features = size.num_heads * (2 * keys + size.head_size)  # F
  gates = 2 * (width if size.gate_style == 'unit' else 1)  # 2 * G
  columns = {
    'attention_0/qkv': features,
    'attention_0/qkv_norm': features,
    'input_gates': gates,
    'memory_gates': gates,
  }
  weights = {}
  structure = names.Structure(1, size.mlp_layers, gated=True)
  for sonnet, haiku in names.name_table(structure):
    module, leaf = haiku.rsplit('/', 1)
    shape = (columns.get(module, width),)
    if leaf == 'w':
      rows = size.features if module == 'input' else width
      value = rng.standard_normal((rows, *shape)) * rows**-0.5
    else:  # Not exactly one or zero, so that leaving one out changes results.
      value = rng.standard_normal(shape) * 0.1 + (leaf == 'scale')
    weights[f'relational_memory/{sonnet}'] = value.astype(np.float32)
  state = np.eye(size.mem_slots, width, dtype=np.float32)
  return {
    'inputs': rng.standard_normal(
      (size.steps, size.batch, size.features), dtype=np.float32
    ),
    'state': np.repeat(state[None], size.batch, axis=0),
    'weights': weights,
  }


def write(path: pathlib.Path, size: Size, *, sonnet: bool = False) -> None:
  """Writes the arrays, the weights by Haiku's or the original's names."""
  arrays = make_arrays(size)
  weights = arrays.pop('weights')
  if not sonnet:
    weights = _flat(convert.from_sonnet(weights))
  arrays.update({f'weights/{name}': w for name, w in weights.items()})
  np.savez(path, **arrays)


def by_haiku_names(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Renames the gradients among the results of the original."""
  prefix = 'gradients/'
  others = {k: v for k, v in results.items() if not k.startswith(prefix)}
  gradients = _flat(
    convert.from_sonnet(
      {
        name.removeprefix(prefix): value
        for name, value in results.items()
        if name.startswith(prefix)
      }
    )
  )
  return others | {prefix + name: value for name, value in gradients.items()}


def difference(
  found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> dict[str, float]:
  """Returns the relative differences of outputs, loss and gradients.

  A gradient is measured by the largest entry of all gradients: small ones are
  sums of large terms that cancel, and no more exact than those. Missing
  results, other shapes and NaNs count as infinitely different.
  """
  worst: dict[str, float] = {}
  for name in {**expected, **found}:
    group = name.split('/')[0]
    value = float('inf')
    if name in found and name in expected:
      a, b = found[name], expected[name]
      if a.shape == b.shape:
        scale = max(
          np.max(np.abs(each))
          for key, each in expected.items()
          if key.split('/')[0] == group
        )
        value = float(np.max(np.abs(a - b)) / scale)
    value = float('inf') if np.isnan(value) else value
    worst[group] = max(worst.get(group, 0.0), value)
  return worst


def disagreement(
  differences: Mapping[str, float], precision: str
) -> str | None:
  """Returns why an implementation is not timed; None if it agrees."""
  tolerance = TOLERANCE[precision]
  wrong = ', '.join(
    f'{group} by {value:.1e}'
    for group, value in differences.items()
    if not value <= tolerance
  )
  return f'differs in {wrong}; {tolerance:.0e} is allowed' if wrong else None


def _flat(
  params: Mapping[str, Mapping[str, np.ndarray]],
) -> dict[str, np.ndarray]:
  return {
    f'{module}/{leaf}': value
    for module, leaves in params.items()
    for leaf, value in leaves.items()
  }
