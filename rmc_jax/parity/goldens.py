"""Golden files: results of the original, stored, for a check without it.

  python -m rmc_jax.parity.goldens            says what would be written
  python -m rmc_jax.parity.goldens --write    writes the files that are missing

Weights and inputs are not stored: a closed formula makes them anew, the same on
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
from rmc_jax.parity import live
from rmc_jax.parity import ours
from rmc_jax.parity import reference
from rmc_jax.parity.cases import Rung
from rmc_jax.parity.cases import Size
from rmc_jax.parity.compare import Gap
from rmc_jax.parity.compare import gap
from rmc_jax.parity.reference import Case
from rmc_jax.parity.reference import Reference

FOLDER = pathlib.Path(__file__).with_name('goldens')


def check(names: Iterable[str] | None = None) -> Iterator[Gap]:
  """Our gap on every rung of the named goldens, or of all.

  Raises:
    FileNotFoundError: a golden is registered and not there.
    ValueError: a golden was made from other weights or inputs.
  """
  known = registry()
  for name in known if names is None else names:
    case = known[name][0].case
    theirs, _ = load(name, case)
    computed = [ours.compute(case, dtype) for dtype in live.PRECISIONS]
    for rung in known[name]:
      yield gap(rung, *computed, *theirs)


def registry() -> dict[str, list[Rung]]:
  """Name of the file -> the rungs on the one case that it holds."""
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
    return cases.unroll_rungs(names, formula(), *configuration, **options)

  # Gradients and training in one of them each: they take most of the time.
  return {
    'layer_norm': [cases.layer_norm_rung(formula(), 5, 13)],
    'unit_gates': unroll(['steps', 'gradients'], unit, flat),
    'memory_gates_matrix': unroll(['steps'], memory, matrix),
    'no_gates': unroll(['steps'], ungated, flat),
    'qkv_query_scale': unroll(['steps'], old, flat, query_scale='qkv'),
    'dataset': [cases.dataset_rung(formula(), 5, 3)],
    'adam': cases.train_rungs(
      ['losses', 'weights'], formula(), small, few, 10, epsilon=1e-5
    ),
  }


def formula() -> cases.Fill:
  """Fills arrays one after another, with no random generator.

  Entry number n of all arrays together is a hash of n, the finaliser of
  Steele et al. 2014, "Fast splittable pseudorandom number generators", figure
  16, spread over [-sqrt(3), sqrt(3)): variance 1, as the random numbers of the
  live ladder. Integers and one division: the same numbers everywhere.
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
  name: str, case: Case
) -> tuple[tuple[dict[str, np.ndarray], ...], dict[str, Any]]:
  """((float32 results, float64 results), versions of the original)."""
  path = FOLDER / f'{name}.npz'
  if not path.exists():
    raise FileNotFoundError(
      f'The golden {path} is registered but not there; make it with python -m '
      'rmc_jax.parity.goldens --write.'
    )
  with np.load(path) as file:
    stored = dict(file)
  if str(stored.pop('made_from')) != digest(case):
    raise ValueError(
      f'The golden {path} was made from other weights, inputs or settings than '
      'the registry has now. Undo that change, or see goldens/README.md.'
    )
  about = json.loads(str(stored.pop('about')))
  results = tuple(
    {
      key.removesuffix(f'@{dtype}'): value
      for key, value in stored.items()
      if key.endswith(f'@{dtype}')
    }
    for dtype in live.PRECISIONS
  )
  return results, about


def references() -> list[dict[str, Any]]:
  """The different originals that made the goldens."""
  found = []
  for name, rungs in registry().items():
    _, about = load(name, rungs[0].case)
    if about not in found:
      found.append(about)
  return found


def digest(case: Case) -> str:
  """A fingerprint of everything that both sides are given."""
  sha = hashlib.sha256(
    json.dumps([case.kind, case.settings], sort_keys=True).encode()
  )
  for name, value in sorted(case.arrays.items()):
    sha.update(f'{name} {value.dtype} {value.shape} '.encode())
    sha.update(np.ascontiguousarray(value).tobytes())
  return sha.hexdigest()


def make(name: str, original: Reference) -> int:
  """Runs the original and writes one golden; returns its size in bytes."""
  case = registry()[name][0].case
  asked = [live.in_dtype(case, dtype) for dtype in live.PRECISIONS]
  answers = original.run(asked)
  arrays: dict[str, Any] = {
    f'{key}@{dtype}': value
    for dtype, answer in zip(live.PRECISIONS, answers.values(), strict=True)
    for key, value in answer.items()
  }
  path = FOLDER / f'{name}.npz'
  with open(path, 'wb') as file:
    np.savez_compressed(
      file, made_from=digest(case), about=json.dumps(original.about), **arrays
    )
  return path.stat().st_size


def main(arguments: list[str] | None = None) -> int:
  """The generator; dry by default. Returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m rmc_jax.parity.goldens',
    description='Makes golden files with the original. Without --write, only '
    'says what it would do.',
  )
  parser.add_argument('names', nargs='*', help='which goldens (default: all)')
  parser.add_argument('--write', action='store_true', help='do it')
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
    parser.error(f'no such golden: {unknown}; there are {sorted(known)}')
  for name in options.names or known:
    exists = (FOLDER / f'{name}.npz').exists()
    if exists and not options.overwrite:
      _say(f'{name}: exists, kept')
    elif not options.write:
      _say(f'{name}: would be {"replaced" if exists else "made"}')
    else:
      old = known[name][0].case.settings.get('query_scale') == 'qkv'
      find = reference.find_1_26 if old else reference.find
      size = make(name, find(options.python))
      _say(f'{name}: written, {size} bytes')
  return 0


def _say(line: str) -> None:
  sys.stdout.write(line + '\n')


if __name__ == '__main__':
  sys.exit(main())
