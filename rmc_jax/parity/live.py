"""Runs cases beside the original."""

from collections.abc import Iterator
from collections.abc import Sequence
import concurrent.futures
import os
import tempfile

import numpy as np

from rmc_jax.parity import cases
from rmc_jax.parity import ours
from rmc_jax.parity.cases import Case
from rmc_jax.parity.compare import compare
from rmc_jax.parity.compare import Comparison
from rmc_jax.parity.convert import from_sonnet
from rmc_jax.parity.convert import select_core
from rmc_jax.parity.convert import to_sonnet
from rmc_jax.parity.reference import below
from rmc_jax.parity.reference import Computation
from rmc_jax.parity.reference import PRECISIONS
from rmc_jax.parity.reference import Reference

# Cases per start of the original: few starts, yet regular output.
_CHUNK = 32


def compare_cases(
  chosen: Sequence[Case], current: Reference, old: Reference
) -> Iterator[Comparison]:
  """Runs both sides on every case and yields the comparisons in order.

  The original runs in another process, at the same time and ahead of ours.
  Cases with the query scale 'qkv' run on `old`, dm-sonnet 1.26.
  """

  def run_original(computations):
    results = {}
    for scale, original in {'key': current, 'qkv': old}.items():
      selected = [
        c
        for c in computations.values()
        if c.settings.get('query_scale', 'key') == scale
      ]
      if selected:
        results |= original.run_in_both_precisions(selected)
    return results

  chunks = [chosen[i : i + _CHUNK] for i in range(0, len(chosen), _CHUNK)]
  # Several cases may share a computation.
  distinct = [{c.computation.name: c.computation for c in x} for x in chunks]
  pool = concurrent.futures.ThreadPoolExecutor(1)
  try:
    originals = pool.map(run_original, distinct)
    for chunk, computations in zip(chunks, distinct, strict=True):
      mine = {
        name: ours.compute_in_both_precisions(computation)
        for name, computation in computations.items()
      }
      theirs = next(originals)
      for case in chunk:
        name = case.computation.name
        yield compare(case, mine[name], theirs[name])
  finally:
    pool.shutdown(cancel_futures=True)


def compare_checkpoints(
  fill: cases.Fill, current: Reference
) -> Iterator[Comparison]:
  """A checkpoint that the original trained and saved, and one of ours."""
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'model.ckpt')
    yield _compare_read(fill, current, f'{path}-read')
    yield _compare_written(fill, current, f'{path}-written')


def _compare_read(
  fill: cases.Fill, current: Reference, path: str
) -> Comparison:
  """The original trains and saves; we read, convert and run."""
  size, arguments = cases.SIZE, {**cases.ARGUMENTS, 'gate_style': 'unit'}
  (train,) = cases.train_cases(['losses'], fill, arguments, size, updates=3)
  (case,) = cases.unroll_cases(['checkpoint read'], fill, arguments, size)
  _, inputs = _split_weights(case.computation)
  restored = case.computation._replace(arrays=inputs)
  results = current.run_in_both_precisions(
    [
      train.computation.with_settings(checkpoint=path),
      Computation('read', 'read_checkpoint', {'checkpoint': path}, {}),
      restored.with_settings(checkpoint=path),
    ]
  )
  mine = []
  for dtype, variables in zip(PRECISIONS, results['read'], strict=True):
    core = select_core(variables).core
    weights = {f'weights/{name}': value for name, value in core.items()}
    mine.append(ours.compute(restored._replace(arrays=inputs | weights), dtype))
  return compare(case, mine, results[restored.name])


def _compare_written(
  fill: cases.Fill, current: Reference, path: str
) -> Comparison:
  """We convert and save; the original restores into its own graph and runs."""
  size, arguments = cases.SIZE, {**cases.ARGUMENTS, 'gate_style': 'memory'}
  (case,) = cases.unroll_cases(['checkpoint written'], fill, arguments, size)
  weights, inputs = _split_weights(case.computation)
  variables = to_sonnet(from_sonnet(weights), 'agent/core/relational_memory')
  restored = case.computation._replace(arrays=inputs)
  results = current.run_in_both_precisions(
    [
      Computation('write', 'write_checkpoint', {'checkpoint': path}, variables),
      restored.with_settings(checkpoint=path, scope='agent/core'),
    ]
  )
  mine = ours.compute_in_both_precisions(case.computation)
  return compare(case, mine, results[restored.name])


def _split_weights(
  computation: Computation,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """(weights by TensorFlow name, all other arrays)."""
  arrays = computation.arrays
  inputs = {k: v for k, v in arrays.items() if not k.startswith('weights/')}
  return below('weights/', arrays), inputs
