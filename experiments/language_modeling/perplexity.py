"""Perplexity of a split: of the whole text, by unroll length, by frequency."""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple

import jax
import numpy as np

from rmc_jax.tasks.language.vocabulary import Vocabulary
from rmc_jax.tasks.language.windows import continuous
from rmc_jax.training import parallel
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

# (params, inputs [B, T], targets [B, T], state, reset [B]) -> [B, T], state
LogProbs = Callable[
  [ArrayTree, Array, Array, ArrayTree, Array | None], tuple[Array, ArrayTree]
]
# (what is measured, words done, words in total)
ProgressFn = Callable[[str, int, int], None]
# Table 3 of the paper: minimum count of a word in the training text.
BANDS = {'> 10,000': 10_001, '1,000 to 10,000': 1000, '< 1,000': 0}


class Model(NamedTuple):
  """A model to measure."""

  log_probs: LogProbs  # jitted here, with dropout off
  initial_state: Callable[[int], ArrayTree]  # number of examples -> state


def no_progress(what: str, done: int, total: int) -> None:
  """Ignores progress."""


def token_log_probs(
  model: Model,
  params: ArrayTree,
  ids: np.ndarray,
  window: int,
  eos: int,
  *,
  num_rows: int = 1,
  name: str = 'text',
  progress_fn: ProgressFn = no_progress,
) -> np.ndarray:
  """The log probability of every token of a text, with the state carried.

  With one row, the state is carried from the first token to the last. With more
  rows, the text is cut into that many pieces, which are read side by side and
  sharded over the devices; each begins from the initial state, one window
  before its first token, so that its state is nearly that of the single row. A
  text too short for that is read as one row.

  Args:
    model: to measure.
    params: placed as `parallel.replicate` does.
    ids: [tokens], the text.
    window: tokens of a row in one call; does not change the result of one row.
    eos: id of the symbol before the first token.
    num_rows: rounded up to a multiple of the devices, unless it is 1.
    name: of the text, for `progress_fn`.
    progress_fn: called after each window.

  Returns:
    [tokens] float64, in nats.
  """
  if num_rows > 1:
    devices = jax.device_count()
    num_rows = -(-num_rows // devices) * devices
  report = functools.partial(progress_fn, name)
  if num_rows == 1 or len(ids) < num_rows * window:
    return _one_row(model, params, ids, window, eos, report)
  return _many_rows(model, params, ids, window, eos, num_rows, report)


def _one_row(model, params, ids, window, eos, report) -> np.ndarray:
  params = local(params)
  state, parts, done = model.initial_state(1), [], 0
  log_probs = jax.jit(model.log_probs)
  for batch in continuous(ids, window, eos):
    got, state = log_probs(params, batch['inputs'], batch['targets'], state)
    # Only the last window has padding, and its state is not used.
    parts.append(np.asarray(got, np.float64)[batch['mask']])
    done += len(parts[-1])
    report(done, len(ids))
  return np.concatenate(parts)


def _many_rows(model, params, ids, window, eos, num_rows, report) -> np.ndarray:
  def read(params, carry, batch):
    got, state = model.log_probs(
      params, batch['inputs'], batch['targets'], carry[0], batch['reset']
    )
    return (), (state, got)

  mapped = parallel.parallel_map(read)
  own = parallel.process_rows(num_rows)
  length = -(-len(ids) // num_rows)  # tokens in a row
  num_windows = 1 + -(-length // window)  # The first one is the warm-up.
  text = np.concatenate([[eos], np.asarray(ids)]).astype(np.int32)
  starts = length * np.arange(num_rows)[:, None]  # [R, 1]
  parts = []
  empty = np.zeros((num_rows, window), np.float32)
  carry = parallel.shard_rows((model.initial_state(num_rows), empty))
  for w in range(num_windows):
    # The text begins after the warm-up of the first row.
    place = starts + np.arange((w - 1) * window, w * window)  # [R, T]
    inside = np.clip(place, 0, len(ids) - 1)
    batch = {
      'inputs': text[inside],
      'targets': text[inside + 1],
      'reset': (starts[:, 0] == 0) & (w == 1),
    }
    batch = {key: rows[own] for key, rows in batch.items()}
    _, carry = mapped(params, carry, parallel.split_batch(batch))
    if w:
      parts.append(parallel.gather_rows(carry[1]))  # [R, T]
    report(min(w * window, length) * num_rows, length * num_rows)
  rows = np.concatenate(parts, axis=1)[:, :length]  # [R, length]
  return rows.reshape(-1)[: len(ids)].astype(np.float64)


def by_length(
  model: Model,
  params: ArrayTree,
  ids: np.ndarray,
  lengths: tuple[int, ...],
  eos: int,
  batch_size: int = 64,
  *,
  name: str = 'text',
  progress_fn: ProgressFn = no_progress,
) -> dict[int, float]:
  """Perplexity with the state reset every so many words: figure 12.

  The arguments are those of `token_log_probs`, except that the text is cut into
  pieces of each of `lengths` words, `batch_size` of which are read in one call.
  An incomplete last piece does not count.

  Returns:
    Length -> perplexity, without lengths longer than the text.
  """
  params, log_probs = local(params), jax.jit(model.log_probs)
  text = np.concatenate([[eos], np.asarray(ids)]).astype(np.int32)
  result = {}
  for length in lengths:
    num_pieces = len(ids) // length
    if not num_pieces:
      continue
    used, size = num_pieces * length, min(batch_size, num_pieces)
    inputs = text[:used].reshape(num_pieces, length)
    targets = text[1 : used + 1].reshape(num_pieces, length)
    total = 0.0
    for first in range(0, num_pieces, size):
      # The last batch is padded, so that nothing is compiled for it.
      rows = np.arange(first, first + size)
      real = rows < num_pieces
      rows = np.minimum(rows, num_pieces - 1)
      state = model.initial_state(size)
      got, _ = log_probs(params, inputs[rows], targets[rows], state)
      total += np.asarray(got, np.float64)[real].sum()
      done = min(first + size, num_pieces) * length
      progress_fn(f'{name} in unrolls of {length}', done, used)
    result[length] = exp(-total / used)
  return result


def by_frequency(
  log_probs: np.ndarray, ids: np.ndarray, vocabulary: Vocabulary
) -> dict[str, tuple[float, int]]:
  """Perplexity of the words in each of `BANDS`, and of all: table 3.

  Returns:
    Band or 'all' -> (perplexity, tokens); nan if there are no tokens.
  """
  counts = np.asarray(vocabulary.counts)[np.asarray(ids)]  # [tokens]
  result, upper = {}, math.inf
  for band, lower in BANDS.items():
    chosen = log_probs[(counts >= lower) & (counts < upper)]
    result[band] = (perplexity(chosen), len(chosen))
    upper = lower
  result['all'] = (perplexity(log_probs), len(log_probs))
  return result


def unigram_log_probs(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
  """[tokens] log probabilities from the counts of the training text.

  Each count is increased by one, so that no word has probability zero.
  """
  counts = np.asarray(vocabulary.counts, np.float64) + 1
  return np.log(counts / counts.sum())[np.asarray(ids)]


def perplexity(log_probs: np.ndarray) -> float:
  """exp of the mean negative log probability; nan for no tokens."""
  return exp(-log_probs.mean()) if len(log_probs) else math.nan


def exp(nats: float) -> float:
  """exp, with inf for a model that diverged."""
  with np.errstate(over='ignore'):
    return float(np.exp(nats))


def local(params: ArrayTree) -> ArrayTree:
  """Returns the copy of replicated parameters on one device."""
  return jax.tree.map(lambda leaf: leaf.addressable_data(0), params)
