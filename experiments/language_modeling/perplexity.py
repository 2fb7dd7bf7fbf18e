"""Perplexity of a split: in one unroll, by unroll length, by word frequency."""

from collections.abc import Callable
from collections.abc import Mapping
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.tasks.language.vocabulary import Vocabulary
from rmc_jax.tasks.language.windows import continuous
from rmc_jax.types import Array
from rmc_jax.types import ArrayTree

# (params, inputs [B, T], targets [B, T], state) -> log probs [B, T], state
LogProbs = Callable[
  [ArrayTree, Array, Array, ArrayTree], tuple[Array, ArrayTree]
]
# (what is measured, words done, words in all); called at every step of the way
Tell = Callable[[str, int, int], None]
# Table 3 of the paper: how often a word occurs in the training text, at least.
BANDS = {'> 10,000': 10_001, '1,000 to 10,000': 1000, '< 1,000': 0}


class Model(NamedTuple):
  """What is asked for probabilities.

  Attributes:
    log_probs: see `LogProbs`; jitted here, with dropout off.
    initial_state: number of examples -> the core's state.
  """

  log_probs: LogProbs
  initial_state: Callable[[int], ArrayTree]


def say_nothing(what: str, done: int, total: int) -> None:
  """The `Tell` of whom nobody watches."""


def token_log_probs(
  model: Model,
  params: ArrayTree,
  ids: np.ndarray,
  window: int,
  eos: int,
  *,
  name: str = 'text',
  tell: Tell = say_nothing,
) -> np.ndarray:
  """The log probability of every token of a text, in one continuous unroll.

  The state is carried from the first token to the last, so the result does not
  depend on `window`, nor on the batch of the training.

  Args:
    model: see `Model`.
    params: its parameters.
    ids: [tokens], the text.
    window: tokens in one call.
    eos: id of the symbol that the first token follows.
    name: what `tell` calls the text.
    tell: is told after each call.

  Returns:
    [tokens] float64, in nats.
  """
  state, parts, done = model.initial_state(1), [], 0
  log_probs = jax.jit(model.log_probs)
  for batch in continuous(ids, window, eos):
    got, state = log_probs(params, batch['inputs'], batch['targets'], state)
    # The mask is False in the last window alone, whose state nobody uses.
    parts.append(np.asarray(got, np.float64)[batch['mask']])
    done += len(parts[-1])
    tell(f'{name} in one unroll', done, len(ids))
  return np.concatenate(parts)


def by_length(
  model: Model,
  params: ArrayTree,
  ids: np.ndarray,
  lengths: tuple[int, ...],
  eos: int,
  batch_size: int = 64,
  *,
  name: str = 'text',
  tell: Tell = say_nothing,
) -> dict[int, float]:
  """Perplexity where the state begins anew every so many words: figure 12.

  Args:
    model: see `Model`.
    params: its parameters.
    ids: [tokens], the text; of a last piece that is too short nothing counts.
    lengths: words from one start of the state to the next.
    eos: id of the symbol that the first token of the text follows.
    batch_size: pieces at a time.
    name: what `tell` calls the text.
    tell: is told after each batch.

  Returns:
    Length -> perplexity; without those that are longer than the text.
  """
  log_probs = jax.jit(model.log_probs)
  text = np.concatenate([[eos], np.asarray(ids)]).astype(np.int32)
  result = {}
  for length in lengths:
    num_pieces = len(ids) // length
    if not num_pieces:
      continue
    used = num_pieces * length
    inputs = text[:used].reshape(num_pieces, length)
    targets = text[1 : used + 1].reshape(num_pieces, length)
    total = 0.0
    for first in range(0, num_pieces, batch_size):
      rows = slice(first, first + batch_size)
      size = len(inputs[rows])
      # One shape, so that nothing is compiled for the last pieces.
      padded = [
        _pad(x[rows], min(batch_size, num_pieces)) for x in (inputs, targets)
      ]
      state = model.initial_state(len(padded[0]))
      got, _ = log_probs(params, *padded, state)
      total += np.asarray(got[:size], np.float64).sum()
      done = (first + size) * length
      tell(f'{name} in unrolls of {length}', done, used)
    result[length] = exp(-total / used)
  return result


def by_frequency(
  log_probs: np.ndarray, ids: np.ndarray, vocabulary: Vocabulary
) -> dict[str, tuple[float, int]]:
  """Perplexity of the words of each of `BANDS`: table 3.

  Args:
    log_probs: [tokens] of `token_log_probs`.
    ids: [tokens] the same text.
    vocabulary: has the counts of the training text.

  Returns:
    Band, or 'all' -> (perplexity, tokens); nan where there are no tokens.
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
  """[tokens] log probabilities by the counts of the training text alone.

  One is added to each count, so that a word which only other splits have is
  possible.
  """
  counts = np.asarray(vocabulary.counts, np.float64) + 1
  return np.log(counts / counts.sum())[np.asarray(ids)]


def perplexity(log_probs: np.ndarray) -> float:
  """exp of the mean negative log probability; nan for no tokens."""
  return exp(-log_probs.mean()) if len(log_probs) else math.nan


def exp(nats: float) -> float:
  """The perplexity of so many nats a word; of a diverged model inf."""
  with np.errstate(over='ignore'):
    return float(np.exp(nats))


def summary(
  model: Model,
  params: ArrayTree,
  ids: Mapping[str, np.ndarray],
  vocabulary: Vocabulary,
  *,
  window: int,
  lengths: tuple[int, ...],
  tell: Tell = say_nothing,
) -> dict:
  """All figures of a trained model, as plain numbers for a JSON file.

  Args:
    model: see `Model`.
    params: its parameters.
    ids: 'valid' and 'test' -> [tokens].
    vocabulary: of the ids.
    window: tokens in one call.
    lengths: of `by_length`, on 'valid'.
    tell: is told how far it is.

  Returns:
    For each split 'perplexity', 'unigram', 'tokens' and 'by_frequency', and for
    all 'uniform' and 'by_length'.
  """
  result: dict = {'uniform': vocabulary.size, 'splits': {}}
  for split in ('valid', 'test'):
    log_probs = token_log_probs(
      model,
      params,
      ids[split],
      window,
      vocabulary.eos,
      name=split,
      tell=tell,
    )
    result['splits'][split] = {
      'perplexity': perplexity(log_probs),
      'unigram': perplexity(unigram_log_probs(ids[split], vocabulary)),
      'tokens': len(log_probs),
      'by_frequency': by_frequency(log_probs, ids[split], vocabulary),
    }
  result['by_length'] = by_length(
    model,
    params,
    ids['valid'],
    lengths,
    vocabulary.eos,
    name='valid',
    tell=tell,
  )
  return result


def _pad(rows: np.ndarray, size: int) -> Array:
  """[rows, T] filled up to [size, T] with copies of the last."""
  return jnp.asarray(rows[np.minimum(np.arange(size), len(rows) - 1)])
