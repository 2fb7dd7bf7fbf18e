"""Windows of a text for training and for evaluation."""

from collections.abc import Iterator

import numpy as np

from rmc_jax.checks import positive_int


class Windows:
  """A training text as B rows read side by side, T tokens at every step.

  With S = num_windows * T, row b of window w has

    inputs[b, t]  = ids[b S + w T + t]
    targets[b, t] = ids[b S + w T + t + 1]

  so the last target of a window is the first input of the next, and the last
  target of a row the first input of the next row: each of ids[1 : 1 + B S] is a
  target once per epoch, and only the fewer than B T tokens at the end of the
  text are left out. (The common PyTorch convention cuts rows of len(ids) // B
  tokens: no row's first token is a target, and the last window is shorter than
  T, which would compile a second time here.)

  Step s is window s % num_windows of epoch s // num_windows. Every epoch has
  the same order, because the state is carried from window to window.

  Args:
    ids: [tokens] integers, from `ids.read_ids`; read only by `batch_at`.
    batch_size: B, the rows of all processes together.
    window: T, the tokens per row and step.

  Raises:
    ValueError: a size is below 1, or the text is shorter than B T + 1.
  """

  def __init__(self, ids: np.ndarray, batch_size: int, window: int):
    ids = np.asanyarray(ids)  # keeps a memory map, whose file errors name
    _check(ids, window)
    positive_int('batch_size', batch_size)
    self.num_windows = (len(ids) - 1) // (batch_size * window)
    if not self.num_windows:
      raise ValueError(
        f'{_name(ids)} has {len(ids)} tokens, but batch_size={batch_size} '
        f'rows of window={window} need {batch_size * window + 1}. Use a longer '
        f'text, or sizes with a product of at most {len(ids) - 1}.'
      )
    self.batch_size = batch_size
    self.window = window
    used = batch_size * self.num_windows * window
    ids = np.asarray(ids)  # the same memory without the overhead of np.memmap
    self._inputs = ids[:used].reshape(batch_size, -1)  # [B, S], not a copy
    self._targets = ids[1 : used + 1].reshape(batch_size, -1)  # [B, S]

  def batch_at(
    self, step: int, rows: slice = slice(None)
  ) -> dict[str, np.ndarray]:
    """The batch of a step.

    Args:
      step: from 0.
      rows: the rows of this process, as from `training.parallel.process_rows`;
        only these are read.

    Returns:
      inputs: [b, T] int32.
      targets: [b, T] int32, the token after each input.
      reset: [b] bool, whether to reset the state before this window: True for
        the first window of an epoch.

    Raises:
      ValueError: `rows` is empty, has a stride or exceeds the batch.
    """
    first, stop, stride = rows.indices(self.batch_size)
    if (rows.stop or 0) > self.batch_size or first >= stop or stride != 1:
      raise ValueError(
        f'rows must be a nonempty slice of the {self.batch_size} rows of a '
        f'batch, without a stride. Got: {rows}.'
      )
    window = step % self.num_windows
    span = slice(window * self.window, (window + 1) * self.window)
    return {
      'inputs': self._inputs[rows, span].astype(np.int32),
      'targets': self._targets[rows, span].astype(np.int32),
      'reset': np.full(stop - first, window == 0),
    }


def continuous(
  ids: np.ndarray, window: int, eos: int
) -> Iterator[dict[str, np.ndarray]]:
  """Yields a whole split once, in order and as one row, for evaluation.

  Inputs are <eos>, ids[0], ..., ids[-2] and targets are ids, [1, T] int32 at a
  time, with T = window. So every token is a target once, the first one after an
  <eos>, and for any T the perplexity is that of the published number of tokens.
  (The common PyTorch convention leaves out the first token of each row.) The
  mask, [1, T] bool, is False for the padding of the last window with `eos`.

  Raises:
    ValueError: `window` is below 1, or there are no tokens; raised at once.
  """
  _check(ids, window)
  return _continuous(np.asarray(ids), window, eos)


def _continuous(
  ids: np.ndarray, window: int, eos: int
) -> Iterator[dict[str, np.ndarray]]:
  previous = eos
  for start in range(0, len(ids), window):
    piece = ids[start : start + window]
    targets = np.full(window, eos, np.int32)
    targets[: len(piece)] = piece
    yield {
      'inputs': np.append(previous, targets[:-1])[None].astype(np.int32),
      'targets': targets[None],
      'mask': (np.arange(window) < len(piece))[None],
    }
    previous = piece[-1]


def _check(ids: np.ndarray, window: int) -> None:
  if ids.ndim != 1 or not ids.size:
    raise ValueError(
      f'{_name(ids)} must be one nonempty row of tokens. Got the shape '
      f'{ids.shape}. Check the files that it was prepared from.'
    )
  positive_int('window', window)


def _name(ids: np.ndarray) -> str:
  return str(getattr(ids, 'filename', 'The text'))
