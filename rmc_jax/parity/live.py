"""The ladder climbed beside the original, running."""

from collections.abc import Iterator
from collections.abc import Sequence
import concurrent.futures
import os
import tempfile

import numpy as np

from rmc_jax.parity import cases
from rmc_jax.parity import ours
from rmc_jax.parity.cases import Rung
from rmc_jax.parity.compare import Gap
from rmc_jax.parity.compare import gap
from rmc_jax.parity.convert import from_sonnet
from rmc_jax.parity.convert import select_core
from rmc_jax.parity.convert import to_sonnet
from rmc_jax.parity.reference import Case
from rmc_jax.parity.reference import Reference

PRECISIONS = ('float32', 'float64')
# Rungs for one start of the original: few starts, yet news every now and then.
_CHUNK = 32


def climb(
  rungs: Sequence[Rung], current: Reference, old: Reference | None
) -> Iterator[Gap]:
  """Runs both sides on every rung; gives the gaps in the rungs' order.

  The original runs in another process, at the same time and ahead of ours.

  Args:
    rungs: the rungs; those with the query scale 'qkv' run on `old`.
    current: the original as of dm-sonnet 1.36.
    old: the original as of dm-sonnet 1.26; None where no rung needs it.
  """
  chunks = [rungs[i : i + _CHUNK] for i in range(0, len(rungs), _CHUNK)]
  distinct = [{r.case.name: r.case for r in chunk} for chunk in chunks]
  pool = concurrent.futures.ThreadPoolExecutor(1)
  try:
    asked = [
      pool.submit(_ask, [*chosen.values()], current, old) for chosen in distinct
    ]
    for chunk, chosen, future in zip(chunks, distinct, asked, strict=True):
      computed = {
        name: [ours.compute(case, dtype) for dtype in PRECISIONS]
        for name, case in chosen.items()
      }
      answers = future.result()
      for rung in chunk:
        name = rung.case.name
        yield gap(rung, *computed[name], *answers[name])
  finally:
    pool.shutdown(cancel_futures=True)


def _ask(
  chosen: Sequence[Case], current: Reference, old: Reference | None
) -> dict[str, list[dict[str, np.ndarray]]]:
  """Case -> the original's results in each precision."""
  answers = {}
  for scale, original in {'key': current, 'qkv': old}.items():
    asked = [
      in_dtype(case, dtype)
      for case in chosen
      if case.settings.get('query_scale', 'key') == scale
      for dtype in PRECISIONS
    ]
    if asked and original is None:
      raise ValueError(
        f'{asked[0].name} scales queries as dm-sonnet 1.26 did, which is not '
        'given.'
      )
    if asked:
      answers.update(original.run(asked))
  return {
    case.name: [answers[in_dtype(case, dtype).name] for dtype in PRECISIONS]
    for case in chosen
  }


def in_dtype(case: Case, dtype: str) -> Case:
  """The case with its arrays, and its name, in one precision."""
  arrays = {name: value.astype(dtype) for name, value in case.arrays.items()}
  return case._replace(name=f'{case.name}@{dtype}', arrays=arrays)


def climb_checkpoints(fill: cases.Fill, current: Reference) -> Iterator[Gap]:
  """A checkpoint the original trained and saved, and one that we wrote."""
  with tempfile.TemporaryDirectory() as folder:
    yield _read_trained(fill, current, folder)
    yield _write(fill, current, folder)


def _read_trained(fill: cases.Fill, current: Reference, folder: str) -> Gap:
  """Trains and saves there, reads and converts here, and compares the steps."""
  size, arguments = cases.SIZE, {**cases.ARGUMENTS, 'gate_style': 'unit'}
  train = cases.train_rungs(['losses'], fill, arguments, size, 3)[0].case
  (rung,) = cases.unroll_rungs(['checkpoint read'], fill, arguments, size)
  inputs = {
    name: value
    for name, value in rung.case.arrays.items()
    if not name.startswith('weights/')
  }
  results = []
  for dtype in PRECISIONS:
    saved = {'checkpoint': os.path.join(folder, f'trained-{dtype}')}
    trained = train._replace(settings={**train.settings, **saved})
    restored = rung.case._replace(
      name='restored', settings={**rung.case.settings, **saved}, arrays=inputs
    )
    answers = current.run(
      [
        in_dtype(trained, dtype),
        Case('read', 'read_checkpoint', saved, {}),
        in_dtype(restored, dtype),
      ]
    )
    core = select_core(answers['read']).core
    weights = {f'weights/{name}': value for name, value in core.items()}
    mine = ours.compute(rung.case._replace(arrays={**inputs, **weights}), dtype)
    results.append((mine, answers[in_dtype(restored, dtype).name]))
  (ours32, theirs32), (ours64, theirs64) = results
  return gap(rung, ours32, ours64, theirs32, theirs64)


def _write(fill: cases.Fill, current: Reference, folder: str) -> Gap:
  """Converts and saves here, restores into the original's own graph there."""
  size, arguments = cases.SIZE, {**cases.ARGUMENTS, 'gate_style': 'memory'}
  (rung,) = cases.unroll_rungs(['checkpoint written'], fill, arguments, size)
  weights, inputs = {}, {}
  for name, value in rung.case.arrays.items():
    if name.startswith('weights/'):
      weights[name.removeprefix('weights/')] = value
    else:
      inputs[name] = value
  variables = to_sonnet(from_sonnet(weights), 'agent/core/relational_memory')
  results = []
  for dtype in PRECISIONS:
    saved = {'checkpoint': os.path.join(folder, f'written-{dtype}')}
    restored = rung.case._replace(
      settings={**rung.case.settings, **saved, 'scope': 'agent/core'},
      arrays=inputs,
    )
    write = Case('write', 'write_checkpoint', saved, variables)
    write = in_dtype(write, dtype)
    answers = current.run([write, in_dtype(restored, dtype)])
    results.append(
      (ours.compute(rung.case, dtype), answers[in_dtype(rung.case, dtype).name])
    )
  (ours32, theirs32), (ours64, theirs64) = results
  return gap(rung, ours32, ours64, theirs32, theirs64)
