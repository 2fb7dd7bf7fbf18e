"""Runs cases beside the original."""

from collections.abc import Iterator
from collections.abc import Sequence
import concurrent.futures
import os
import tempfile

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
from rmc_jax.parity.reference import Results

# Cases per start of the original: few starts, yet regular output.
_CHUNK = 32


def compare_cases(
  chosen: Sequence[Case], current: Reference, old: Reference | None
) -> Iterator[Comparison]:
  """Runs both sides on every case and yields the comparisons in order.

  The original runs in another process, at the same time and ahead of ours.

  Args:
    chosen: the cases; those with the query scale 'qkv' run on `old`.
    current: the original as of dm-sonnet 1.36.
    old: the original as of dm-sonnet 1.26; None if no case needs it.
  """
  chunks = [chosen[i : i + _CHUNK] for i in range(0, len(chosen), _CHUNK)]
  # Several cases may share a computation.
  distinct = [{c.computation.name: c.computation for c in x} for x in chunks]
  pool = concurrent.futures.ThreadPoolExecutor(1)
  try:
    futures = [
      pool.submit(_run_original, [*x.values()], current, old) for x in distinct
    ]
    for chunk, computations, future in zip(
      chunks, distinct, futures, strict=True
    ):
      mine = {
        name: ours.compute_in_both_precisions(computation)
        for name, computation in computations.items()
      }
      theirs = future.result()
      for case in chunk:
        name = case.computation.name
        yield compare(case, mine[name], theirs[name])
  finally:
    pool.shutdown(cancel_futures=True)


def _run_original(
  computations: Sequence[Computation],
  current: Reference,
  old: Reference | None,
) -> dict[str, Sequence[Results]]:
  """Computation -> the original's results in each precision."""
  results = {}
  for scale, original in {'key': current, 'qkv': old}.items():
    selected = [
      computation
      for computation in computations
      if computation.settings.get('query_scale', 'key') == scale
    ]
    if selected and original is None:
      raise ValueError(
        'old must be a Reference of dm-sonnet 1.26, whose query scale '
        f'{selected[0].name!r} has. Got: None.'
      )
    if selected:
      results |= original.run_in_both_precisions(selected)
  return results


def compare_checkpoints(
  fill: cases.Fill, current: Reference
) -> Iterator[Comparison]:
  """A checkpoint that the original trained and saved, and one of ours."""
  with tempfile.TemporaryDirectory() as folder:
    yield _compare_read(fill, current, folder)
    yield _compare_written(fill, current, folder)


def _compare_read(
  fill: cases.Fill, current: Reference, folder: str
) -> Comparison:
  """The original trains and saves; we read, convert and run."""
  size, arguments = cases.SIZE, {**cases.ARGUMENTS, 'gate_style': 'unit'}
  train = cases.train_cases(['losses'], fill, arguments, size, 3)[0].computation
  (case,) = cases.unroll_cases(['checkpoint read'], fill, arguments, size)
  _, inputs = _split_weights(case.computation)
  mine, theirs = [], []
  for dtype in PRECISIONS:
    saved = {'checkpoint': os.path.join(folder, f'trained-{dtype}')}
    trained = train._replace(settings={**train.settings, **saved})
    restored = case.computation._replace(
      settings={**case.computation.settings, **saved}, arrays=inputs
    ).in_precision(dtype)
    results = current.run(
      [
        trained.in_precision(dtype),
        Computation('read', 'read_checkpoint', saved, {}),
        restored,
      ]
    )
    core = select_core(results['read']).core
    weights = {f'weights/{name}': value for name, value in core.items()}
    converted = case.computation._replace(arrays={**inputs, **weights})
    mine.append(ours.compute(converted, dtype))
    theirs.append(results[restored.name])
  return compare(case, mine, theirs)


def _compare_written(
  fill: cases.Fill, current: Reference, folder: str
) -> Comparison:
  """We convert and save; the original restores into its own graph and runs."""
  size, arguments = cases.SIZE, {**cases.ARGUMENTS, 'gate_style': 'memory'}
  (case,) = cases.unroll_cases(['checkpoint written'], fill, arguments, size)
  weights, inputs = _split_weights(case.computation)
  variables = to_sonnet(from_sonnet(weights), 'agent/core/relational_memory')
  theirs = []
  for dtype in PRECISIONS:
    saved = {'checkpoint': os.path.join(folder, f'written-{dtype}')}
    write = Computation('write', 'write_checkpoint', saved, variables)
    restored = case.computation._replace(
      settings={**case.computation.settings, **saved, 'scope': 'agent/core'},
      arrays=inputs,
    ).in_precision(dtype)
    results = current.run([write.in_precision(dtype), restored])
    theirs.append(results[restored.name])
  mine = ours.compute_in_both_precisions(case.computation)
  return compare(case, mine, theirs)


def _split_weights(computation: Computation) -> tuple[dict, dict]:
  """(weights by TensorFlow name, all other arrays)."""
  arrays = computation.arrays
  inputs = {k: v for k, v in arrays.items() if not k.startswith('weights/')}
  return below('weights/', arrays), inputs
