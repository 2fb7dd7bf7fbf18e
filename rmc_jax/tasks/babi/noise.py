"""Times of the statements in a memory, with the random noise of training."""

import numpy as np


def consecutive_times(length: np.ndarray, memory_size: int) -> np.ndarray:
  """Returns the times 1, 2, ... of statements, newest first, for evaluation.

  Args:
    length: [B] the number of statements.
    memory_size: M.

  Returns:
    [B, M] int32; 0 for empty slots.
  """
  times = np.arange(1, memory_size + 1, dtype=np.int32)
  return np.where(times <= length[:, None], times, 0)


def noisy_times(
  generator: np.random.Generator,
  length: np.ndarray,
  memory_size: int,
  max_time: np.ndarray | int,
  fraction: float = 0.1,
) -> np.ndarray:
  """Draws times with gaps: "random noise", RN in Sukhbaatar et al. 2015.

  With n statements, b is uniform in 0..ceil(fraction * n), and the times are n
  different ones of 1..n + b, in order. Times beyond `max_time` become
  `max_time`, as in the authors' code. The paper calls the gaps empty memories;
  neither there nor here are empty slots inserted.

  Args:
    generator: consumed.
    length: [B] n.
    memory_size: M.
    max_time: [B], or one for all: the number of time vectors.
    fraction: 0.1 in the paper.

  Returns:
    [B, M] int32; 0 for empty slots.
  """
  length = np.asarray(length)[:, None]  # [B, 1]
  most = np.ceil(fraction * length).astype(int)
  gaps = generator.integers(0, most + 1)  # [B, 1]
  candidates = memory_size + int(np.ceil(fraction * memory_size))
  position = np.arange(candidates)
  draws = generator.random((len(length), candidates))
  draws[position >= length + gaps] = np.inf
  # The n smallest draws of each row are its times.
  rank = draws.argsort(1).argsort(1)
  times = np.where(rank < length, position + 1, candidates + 1)
  times = np.sort(times, 1)[:, :memory_size]
  times = np.minimum(times, np.reshape(max_time, (-1, 1)))
  is_statement = np.arange(memory_size) < length
  return np.where(is_statement, times, 0).astype(np.int32)
