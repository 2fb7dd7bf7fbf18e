"""Where in a text the batch of a step is, in training and in evaluation."""

from collections.abc import Iterator

import numpy as np


class Windows:
  """Training text as B rows read side by side, T tokens at every step.

  Row b of window w holds, with S = num_windows * T,

    inputs[b, t]  = ids[b S + w T + t]
    targets[b, t] = ids[b S + w T + t + 1]

  so the last target of a window is the first input of the next, and the last
  target of a row the first input of the row below it: of ids[1 : 1 + B S] each
  is a target once an epoch, and what is left out, fewer than B T tokens, is at
  the end of the text and nowhere else. (The widespread PyTorch convention cuts
  rows of len(ids) // B tokens: no row's first token is a target, and its last
  window is shorter than T, which would be a second compilation here.)

  The position is a function of the step: window step % num_windows of epoch
  step // num_windows. Every epoch is in the same order, because the state is
  carried from window to window.
  """

  def __init__(self, ids: np.ndarray, batch_size: int, window: int):
    """Cuts the text; reads none of it.

    Args:
      ids: [tokens] integers, of `ids.read_ids`.
      batch_size: B, the rows of all processes together.
      window: T, the tokens of a row in one step.

    Raises:
      ValueError: a size below 1, or a text shorter than B T + 1.
    """
    ids = np.asanyarray(ids)  # a memory map as it is: its errors name its file
    _check(ids, window)
    if batch_size < 1:
      raise ValueError(f'batch_size must be at least 1, got {batch_size}.')
    self.num_windows = (len(ids) - 1) // (batch_size * window)
    if not self.num_windows:
      raise ValueError(
        f'{_name(ids)} has {len(ids)} tokens, but batch_size={batch_size} '
        f'rows of window={window} need {batch_size * window + 1}. Give a '
        'longer text, or sizes whose product is at most '
        f'{len(ids) - 1}.'
      )
    self.batch_size = batch_size
    self.window = window
    shape = (batch_size, self.num_windows * window)
    used = batch_size * self.num_windows * window
    self.num_trimmed = len(ids) - 1 - used  # at the end, in no window
    plain = np.asarray(ids)  # the same memory, spared what np.memmap adds
    self._inputs = plain[:used].reshape(shape)  # [B, S], no copy
    self._targets = plain[1 : used + 1].reshape(shape)  # [B, S], no copy

  def batch_at(
    self, step: int, rows: slice = slice(None)
  ) -> dict[str, np.ndarray]:
    """The batch of one step.

    Args:
      step: of the training, from 0.
      rows: of the batch, those of this process, as
        `training.parallel.process_rows` gives them; only they are read.

    Returns:
      inputs: [b, T] int32.
      targets: [b, T] int32, the token after each input.
      reset: [b] bool, whether the state starts anew before this window: in all
        rows in the first window of an epoch, in none afterwards.

    Raises:
      ValueError: rows that the batch has not.
    """
    first, stop, stride = rows.indices(self.batch_size)
    if (rows.stop or 0) > self.batch_size or first >= stop or stride != 1:
      raise ValueError(
        f'rows must be a slice of the {self.batch_size} rows of a batch, '
        f'with a row in it and no stride. Got: {rows}.'
      )
    window = step % self.num_windows
    span = slice(window * self.window, (window + 1) * self.window)
    return {
      'inputs': self._inputs[rows, span].astype(np.int32),  # [b, T]
      'targets': self._targets[rows, span].astype(np.int32),  # [b, T]
      'reset': np.full(stop - first, window == 0),  # [b]
    }


def continuous(
  ids: np.ndarray, window: int, eos: int
) -> Iterator[dict[str, np.ndarray]]:
  """A whole split once, in order and as one row, for evaluation.

  inputs are <eos>, ids[0], ..., ids[-2] and targets are ids, T at a time, so
  every token of the split is a target exactly once, the first one too, which
  follows an <eos> as if a line had ended there. The perplexity is then that of
  as many tokens as the corpus is published to have, whatever T is. (The
  widespread PyTorch convention leaves the first token of each row out.)

  Args:
    ids: [tokens] integers, of `ids.read_ids`.
    window: T.
    eos: the id of <eos>, `Vocabulary.eos`.

  Returns:
    An iterator over the windows:
      inputs: [1, T] int32.
      targets: [1, T] int32.
      mask: [1, T] bool, False where the last window is filled up, with `eos`.
      reset: [1] bool, True in the first window.

  Raises:
    ValueError: a window below 1, or no tokens.
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
      'reset': np.array([start == 0]),
    }
    previous = piece[-1]


def _check(ids: np.ndarray, window: int) -> None:
  if ids.ndim != 1 or not ids.size:
    raise ValueError(
      f'{_name(ids)} must be one row of tokens, and not empty. Got the shape '
      f'{ids.shape}. Check what it was prepared from.'
    )
  if window < 1:
    raise ValueError(f'window must be at least 1, got {window}.')


def _name(ids: np.ndarray) -> str:
  return str(getattr(ids, 'filename', 'The text'))
