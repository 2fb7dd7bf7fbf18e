"""The words before each word of a text, for models with a fixed memory."""

import numpy as np

from rmc_jax.checks import positive_int


def contexts(ids: np.ndarray, size: int) -> np.ndarray:
  """Returns every word of a text, except the first, with those before it.

  Row i is `ids[i : i + size + 1]`: `size` words, the oldest first, and then the
  word that follows them. So each word after the first `size` is last in one
  row. Rows are read from `ids` when the array is indexed; it takes no memory.

  Args:
    ids: [tokens] integers, from `ids.read_ids`.
    size: N, the words before each word.

  Returns:
    [tokens - N, N + 1], read-only.

  Raises:
    ValueError: `size` is below 1, or the text has no more than `size` words.
  """
  positive_int('size', size)
  if len(ids) <= size:
    raise ValueError(
      f'{getattr(ids, "filename", "The text")} has {len(ids)} words; contexts '
      f'of {size} need {size + 1}. Use a longer text, or smaller contexts.'
    )
  # The same memory without the overhead of np.memmap.
  return np.lib.stride_tricks.sliding_window_view(np.asarray(ids), size + 1)


def random_rows(
  num_rows: int, batch_size: int, seed: int, step: int
) -> np.ndarray:
  """Returns [B] rows drawn with replacement; a function of seed and step."""
  generator = np.random.default_rng([seed, step])
  return generator.integers(0, num_rows, batch_size)
