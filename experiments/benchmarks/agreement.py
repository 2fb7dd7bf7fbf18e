"""The inputs and weights of `unroll`, and the comparison of results."""

from collections.abc import Mapping
import pathlib
from typing import Any

import numpy as np

from experiments.benchmarks.sizes import Size
from rmc_jax.parity import cases
from rmc_jax.parity import checkpoint
from rmc_jax.parity import convert
from rmc_jax.parity import reference

# Largest difference allowed, as a fraction of the largest entry of the outputs,
# of the loss or of the gradients. Rounding errors of one number (6e-8, 5e-4,
# 4e-3) grow over the steps of an unroll: 5e-5 has been seen in float32. A layer
# norm over the wrong axis, a missing bias or another scale of the queries
# changes a hundredth or more.
TOLERANCE = {'float32': 1e-3, 'tf32': 2e-2, 'bfloat16': 5e-2}


def make_arrays(size: Size) -> dict[str, Any]:
  """Makes inputs, the original's initial state, and weights.

  Returns:
    `inputs` [T, B, features], `state` [B, N, D] and, by the original's names,
    `weights`; all in float32.
  """
  rng = np.random.default_rng(0)
  weights = {}
  variables = cases.weight_shapes(size.arguments(), size.features)
  for sonnet, leaf, shape in variables:
    if leaf == 'w':
      value = rng.standard_normal(shape) * shape[0] ** -0.5
    else:  # Not exactly one or zero, so that leaving one out changes results.
      value = rng.standard_normal(shape) * 0.1 + (leaf == 'scale')
    weights[f'relational_memory/{sonnet}'] = value.astype(np.float32)
  state = np.eye(size.mem_slots, size.slot_width, dtype=np.float32)
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
    weights = checkpoint.flatten(convert.from_sonnet(weights))
  arrays.update({f'weights/{name}': w for name, w in weights.items()})
  np.savez(path, **arrays)


def by_haiku_names(results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Renames the gradients among the results of the original."""
  gradients = reference.below('gradients/', results)
  renamed = checkpoint.flatten(convert.from_sonnet(gradients))
  others = {k: v for k, v in results.items() if not k.startswith('gradients/')}
  return others | {f'gradients/{name}': g for name, g in renamed.items()}


def difference(
  found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> dict[str, float]:
  """Returns the relative differences of outputs, loss and gradients.

  A gradient is measured by the largest entry of all gradients: small ones are
  sums of large terms that cancel, and no more exact than those. Missing
  results, other shapes and NaNs count as infinitely different.
  """
  worst, scales = {}, {}
  for name, value in expected.items():
    group = name.split('/')[0]
    scales[group] = max(scales.get(group, 0.0), np.abs(value).max())
  for name in {**expected, **found}:
    a, b = found.get(name), expected.get(name)
    group, value = name.split('/')[0], np.inf
    if a is not None and b is not None and a.shape == b.shape:
      value = float(np.abs(a - b).max() / scales[group])
    value = np.inf if np.isnan(value) else value
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
