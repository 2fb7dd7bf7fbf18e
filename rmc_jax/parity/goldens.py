"""Golden files: stored results of the original, for checks without it.

  python -m rmc_jax.parity.goldens            lists what it would write
  python -m rmc_jax.parity.goldens --write    writes the files that are missing

Weights and inputs are not stored: a closed formula gives the same numbers on
every machine and in every library. goldens/README.md says when a file may be
replaced.
"""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
import hashlib
import json
import math
import pathlib
import sys
from typing import Any

import numpy as np

from rmc_jax.parity import cases
from rmc_jax.parity import ours
from rmc_jax.parity import reference
from rmc_jax.parity.cases import Case
from rmc_jax.parity.cases import Size
from rmc_jax.parity.compare import compare
from rmc_jax.parity.compare import Comparison
from rmc_jax.parity.reference import Computation
from rmc_jax.parity.reference import PRECISIONS

FOLDER = pathlib.Path(__file__).with_name('goldens')


def check(names: Iterable[str] | None = None) -> Iterator[Comparison]:
  """Compares our results with the named goldens, or with all.

  Raises:
    FileNotFoundError: a registered golden does not exist.
    ValueError: a golden was made from other weights or inputs.
  """
  known = registry()
  for name in known if names is None else names:
    computation = known[name][0].computation
    theirs, _ = load(name, computation)
    computed = ours.compute_in_both_precisions(computation)
    for case in known[name]:
      yield compare(case, computed, theirs)


def registry() -> dict[str, list[Case]]:
  """Name of the file -> the cases of the one computation that it holds."""
  unit = {
    'mem_slots': 3,
    'head_size': 5,
    'num_heads': 2,
    'key_size': 7,
    'num_blocks': 2,
    'gate_style': 'unit',
  }
  memory = {
    'mem_slots': 2,
    'head_size': 3,
    'num_heads': 5,
    'gate_style': 'memory',
    'attention_mlp_layers': 3,
    'forget_bias': -0.5,
    'input_bias': 0.25,
  }
  ungated = {
    'mem_slots': 5,
    'head_size': 7,
    'num_heads': 1,
    'key_size': 2,
    'num_blocks': 3,
    'attention_mlp_layers': 1,
    'gate_style': None,
  }
  old = {'mem_slots': 3, 'head_size': 2, 'num_heads': 2, 'key_size': 5}
  small = {**old, 'num_blocks': 1, 'attention_mlp_layers': 1}
  flat = Size(batch=2, steps=3, features=11)
  matrix = Size(batch=3, steps=2, features=7, rows=2)
  few = Size(batch=2, steps=1, features=3)

  def unroll(names, *configuration, **options):
    return cases.unroll_cases(names, formula(), *configuration, **options)

  # Gradients and training occur once each: they take most of the time.
  return {
    'layer_norm': [cases.layer_norm_case(formula(), 5, 13)],
    'unit_gates': unroll(['steps', 'gradients'], unit, flat),
    'memory_gates_matrix': unroll(['steps'], memory, matrix),
    'no_gates': unroll(['steps'], ungated, flat),
    'qkv_query_scale': unroll(['steps'], old, flat, query_scale='qkv'),
    'dataset': [cases.dataset_case(formula(), 5, 3)],
    'adam': cases.train_cases(
      ['losses', 'weights'], formula(), small, few, 10, epsilon=1e-5
    ),
  }


def formula() -> cases.Fill:
  """Returns a function that fills arrays without a random generator.

  Entry n, counted over all arrays, is a hash of n (the finaliser of Steele et
  al. 2014, "Fast splittable pseudorandom number generators", figure 16) spread
  over [-sqrt(3), sqrt(3)), which has variance 1. It takes integers and one
  division, so the numbers are the same everywhere.
  """
  used = 0

  def fill(shape):
    nonlocal used
    count = math.prod(shape)
    hashed = np.arange(used + 1, used + count + 1, dtype=np.uint64)
    hashed *= np.uint64(0x9E3779B97F4A7C15)
    hashed = (hashed ^ (hashed >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    hashed = (hashed ^ (hashed >> 27)) * np.uint64(0x94D049BB133111EB)
    hashed ^= hashed >> 31
    used += count
    fraction = (hashed >> 40).astype(np.float64) / 2**24  # [0, 1)
    return (math.sqrt(12.0) * (fraction - 0.5)).reshape(shape)

  return fill


def load(
  name: str, computation: Computation
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
  """((float32 results, float64 results), versions of the original)."""
  path = FOLDER / f'{name}.npz'
  if not path.exists():
    raise FileNotFoundError(
      f'The registered golden {path} does not exist; make it with python -m '
      'rmc_jax.parity.goldens --write.'
    )
  with np.load(path) as file:
    stored = dict(file)
  if str(stored['made_from']) != digest(computation):
    raise ValueError(
      f'The golden {path} was made from other weights, inputs or settings than '
      'the registry has now. Undo that change, or see goldens/README.md.'
    )
  results: dict[str, dict[str, Any]] = {dtype: {} for dtype in PRECISIONS}
  for key, value in stored.items():
    result, _, dtype = key.partition('@')
    if dtype:
      results[dtype][result] = value
  return list(results.values()), json.loads(str(stored['about']))


def references() -> list[dict[str, Any]]:
  """The distinct originals that made the goldens."""
  found = []
  for name, (case, *_) in registry().items():
    _, about = load(name, case.computation)
    if about not in found:
      found.append(about)
  return found


def digest(computation: Computation) -> str:
  """A fingerprint of everything that both sides are given."""
  _, kind, settings, arrays = computation
  sha = hashlib.sha256(json.dumps([kind, settings], sort_keys=True).encode())
  for name, value in sorted(arrays.items()):
    sha.update(f'{name} {value.dtype} {value.shape} '.encode())
    sha.update(np.ascontiguousarray(value).tobytes())
  return sha.hexdigest()


def main(arguments: list[str] | None = None) -> int:
  """Writes goldens, by default as a dry run; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m rmc_jax.parity.goldens',
    description='Makes golden files with the original. Without --write, only '
    'lists what it would do.',
  )
  parser.add_argument('names', nargs='*', help='which goldens (default: all)')
  parser.add_argument('--write', action='store_true', help='write the files')
  parser.add_argument(
    '--overwrite',
    action='store_true',
    help='replace files that exist; goldens/README.md says when that is right',
  )
  parser.add_argument('--python', help='interpreter with TensorFlow')
  options = parser.parse_args(arguments)
  known = registry()
  unknown = sorted(set(options.names) - set(known))
  if unknown:
    parser.error(f'unknown goldens: {unknown}; expected any of {sorted(known)}')
  for name in options.names or known:
    path = FOLDER / f'{name}.npz'
    exists = path.exists()
    if exists and not options.overwrite:
      outcome = 'exists, kept'
    elif not options.write:
      outcome = f'would be {"replaced" if exists else "made"}'
    else:
      _make(path, known[name][0].computation, options.python)
      outcome = f'written, {path.stat().st_size} bytes'
    sys.stdout.write(f'{name}: {outcome}\n')
  return 0


def _make(
  path: pathlib.Path, computation: Computation, python: str | None
) -> None:
  """Runs the original and writes one golden."""
  is_old = computation.settings.get('query_scale') == 'qkv'
  find = reference.find_1_26 if is_old else reference.find
  original = find(python)
  (results,) = original.run_in_both_precisions([computation]).values()
  arrays: dict[str, Any] = {
    f'{key}@{dtype}': value
    for dtype, result in zip(PRECISIONS, results, strict=True)
    for key, value in result.items()
  }
  arrays['made_from'] = digest(computation)
  arrays['about'] = json.dumps(original.about)
  with open(path, 'wb') as file:
    np.savez_compressed(file, **arrays)


if __name__ == '__main__':
  sys.exit(main())
