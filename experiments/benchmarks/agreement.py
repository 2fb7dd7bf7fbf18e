"""What all contestants of `unroll` are given, and whether they agree on it."""

from collections.abc import Mapping
import pathlib
from typing import Any

import numpy as np

from experiments.benchmarks.sizes import Size
from rmc_jax.parity import convert
from rmc_jax.parity import names

# Largest difference allowed, as a fraction of the largest entry of the outputs,
# of the loss or of the gradients. Roundings of one number (6e-8, 5e-4, 4e-3)
# grow over the steps of an unroll: differences of 5e-5 were seen in float32. A
# layer norm over the wrong axis, a bias left out or the other scale of the
# queries changes a hundredth or more.
TOLERANCE = {'float32': 1e-3, 'tf32': 2e-2, 'bfloat16': 5e-2}


def make_arrays(size: Size, seed: int = 0) -> dict[str, Any]:
  """Inputs, the original's initial state, and weights that all matter.

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
    else:  # Near one or zero, but not there: each is to be noticed.
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


def write(path: pathlib.Path, size: Size, worker: str) -> None:
  """Writes the arrays by the names that a worker knows its weights by."""
  arrays = make_arrays(size)
  weights = arrays.pop('weights')
  if worker != 'sonnet':
    weights = _flat(convert.from_sonnet(weights))
  arrays.update({f'weights/{name}': w for name, w in weights.items()})
  np.savez(path, **arrays)


def read(path: pathlib.Path, worker: str) -> dict[str, np.ndarray]:
  """Reads a worker's results; gradients by our names."""
  with np.load(path) as file:
    results = dict(file)
  if worker != 'sonnet':
    return results
  gradients = {
    name.removeprefix('gradients/'): results.pop(name)
    for name in list(results)
    if name.startswith('gradients/')
  }
  ours = _flat(convert.from_sonnet(gradients))
  return results | {f'gradients/{name}': g for name, g in ours.items()}


def difference(
  found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> dict[str, float]:
  """Largest difference by largest entry, of outputs, loss and gradients.

  A gradient is measured by the largest entry of all gradients: small ones are
  sums of large terms that cancel, and no more exact than those. Results that
  are missing, or of other shapes, are infinitely different.
  """
  worst: dict[str, float] = {}
  for name in {**expected, **found}:
    group = name.split('/')[0]
    worst[group] = max(
      worst.get(group, 0.0), _apart(name, group, found, expected), key=_or_nan
    )
  return worst


def _apart(name, group, found, expected) -> float:
  if name not in found or name not in expected:
    return float('inf')
  if found[name].shape != expected[name].shape:
    return float('inf')
  scale = max(
    np.max(np.abs(value))
    for key, value in expected.items()
    if key.split('/')[0] == group
  )
  return float(np.max(np.abs(found[name] - expected[name])) / scale)


def _or_nan(value: float) -> float:
  """A NaN counts as the largest."""
  return float('inf') if np.isnan(value) else value


def refusal(differences: Mapping[str, float], precision: str) -> str | None:
  """Why a contestant is not timed; None if it agrees."""
  tolerance = TOLERANCE[precision]
  wrong = {
    group: value
    for group, value in differences.items()
    if not value <= tolerance  # So that a NaN is refused, too.
  }
  if not wrong:
    return None
  said = ', '.join(f'{group} by {value:.1e}' for group, value in wrong.items())
  return f'refused: differs in {said}; {tolerance:.0e} is allowed'


def _flat(
  params: Mapping[str, Mapping[str, np.ndarray]],
) -> dict[str, np.ndarray]:
  return {
    f'{module}/{leaf}': value
    for module, leaves in params.items()
    for leaf, value in leaves.items()
  }
