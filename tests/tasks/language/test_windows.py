"""Tests rmc_jax/tasks/language/windows.py."""

import os
import tracemalloc

import numpy as np
import pytest

from rmc_jax.tasks.language.ids import read_ids
from rmc_jax.tasks.language.ids import write_ids
from rmc_jax.tasks.language.vocabulary import Vocabulary
from rmc_jax.tasks.language.windows import continuous
from rmc_jax.tasks.language.windows import Windows
from tests.reference import language as reference

B, T, W = 3, 5, 7
# Distinct ids identify every token: B T W + 1 that are used, and 11 of the at
# most 14 that are left out.
IDS = np.arange(1000, 1000 + B * T * W + 1 + 11, dtype=np.uint16)
EOS = 2


def test_batches_equal_the_reference():
  windows = Windows(IDS, B, T)
  assert windows.num_windows == W
  for step in range(2 * W + 1):
    inputs, targets, _ = reference.window(IDS.tolist(), B, T, step)
    batch = windows.batch_at(step)
    np.testing.assert_array_equal(batch['inputs'], inputs)
    np.testing.assert_array_equal(batch['targets'], targets)
    assert batch['inputs'].dtype == batch['targets'].dtype == np.int32


def test_a_hand_checked_text():
  # 2 rows of 2 windows of 2, and 1 token left out.
  windows = Windows(np.arange(10), 2, 2)
  assert windows.num_windows == 2
  for step, inputs, targets in [
    (0, [[0, 1], [4, 5]], [[1, 2], [5, 6]]),
    (1, [[2, 3], [6, 7]], [[3, 4], [7, 8]]),
    (2, [[0, 1], [4, 5]], [[1, 2], [5, 6]]),
  ]:
    batch = windows.batch_at(step)
    np.testing.assert_array_equal(batch['inputs'], inputs)
    np.testing.assert_array_equal(batch['targets'], targets)


@pytest.mark.parametrize('length', range(B * T + 1, B * T * 3 + 2))
def test_an_epoch_has_each_token_once_except_at_the_end(length):
  windows = Windows(IDS[:length], B, T)
  targets = np.concatenate(
    [windows.batch_at(step)['targets'] for step in range(windows.num_windows)]
  )
  np.testing.assert_array_equal(
    np.sort(targets, None), IDS[1 : targets.size + 1]
  )
  assert 0 <= length - 1 - targets.size < B * T


def test_windows_and_rows_are_contiguous():
  windows = Windows(IDS, B, T)
  rows = [windows.batch_at(step) for step in range(W)]
  for before, after in zip(rows, rows[1:], strict=False):
    np.testing.assert_array_equal(
      before['targets'][:, -1], after['inputs'][:, 0]
    )
  # The last target of a row is the first input of the next.
  np.testing.assert_array_equal(
    rows[-1]['targets'][:-1, -1], rows[0]['inputs'][1:, 0]
  )


def test_reset_is_true_once_per_epoch():
  windows = Windows(IDS, B, T)
  resets = np.stack([windows.batch_at(step)['reset'] for step in range(3 * W)])
  assert resets.shape == (3 * W, B)
  np.testing.assert_array_equal(resets.all(axis=1), resets.any(axis=1))
  np.testing.assert_array_equal(np.flatnonzero(resets[:, 0]), [0, W, 2 * W])


def test_a_batch_depends_only_on_its_step():
  windows, again = Windows(IDS, B, T), Windows(IDS, B, T)
  forth = [windows.batch_at(step) for step in range(W)]
  back = [again.batch_at(step) for step in reversed(range(W))]
  for a, b in zip(forth, reversed(back), strict=True):
    np.testing.assert_array_equal(a['inputs'], b['inputs'])
    np.testing.assert_array_equal(a['reset'], b['reset'])


def test_a_batch_is_a_writable_copy():
  windows = Windows(np.arange(40, dtype=np.int32), B, T)
  windows.batch_at(0)['inputs'][:] = -1
  np.testing.assert_array_equal(windows.batch_at(0)['inputs'][0], range(T))


@pytest.mark.parametrize('processes', [1, 2, 3, 6])
def test_rows_of_all_processes_make_the_batch(processes):
  windows = Windows(IDS, 6, T)
  share = 6 // processes
  for step in range(windows.num_windows + 1):
    whole = windows.batch_at(step)
    parts = [
      windows.batch_at(step, slice(p * share, (p + 1) * share))
      for p in range(processes)
    ]
    assert [len(part['reset']) for part in parts] == [share] * processes
    for name in ('inputs', 'targets', 'reset'):
      joined = np.concatenate([part[name] for part in parts])
      np.testing.assert_array_equal(joined, whole[name])


@pytest.mark.parametrize(
  'rows', [slice(0, 4), slice(3, 6), slice(2, 2), slice(0, 3, 2)]
)
def test_invalid_rows_are_refused(rows):
  with pytest.raises(ValueError, match='slice of the 3 rows .* Got: slice'):
    Windows(IDS, B, T).batch_at(0, rows)


def test_only_the_requested_rows_are_read(tmp_path):
  path = tmp_path / 'ids'
  path.touch()
  os.truncate(path, 1 << 28)  # a sparse file of zeros
  ids = np.memmap(path, np.uint16, 'r')
  tracemalloc.start()
  try:
    windows = Windows(ids, batch_size=64, window=10_000)
    batch = windows.batch_at(5, slice(3, 4))
    peak = tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()
  assert batch['inputs'].shape == (1, 10_000)
  # Inputs and targets of one row are 80 kB, those of all rows 5 MB.
  assert peak < 200_000


@pytest.mark.parametrize('window', [1, 2, 5, 6, 7, 11, 12, 13, 100])
def test_evaluation_has_each_token_once_for_any_window(window):
  ids = IDS[:12]
  batches = list(continuous(ids, window, EOS))
  assert len(batches) == -(-12 // window)
  for name, dtype in [
    ('inputs', np.int32),
    ('targets', np.int32),
    ('mask', bool),
  ]:
    assert {batch[name].shape for batch in batches} == {(1, window)}
    assert {batch[name].dtype for batch in batches} == {np.dtype(dtype)}
  joined = {
    name: np.concatenate([batch[name][0] for batch in batches])
    for name in ('inputs', 'targets', 'mask')
  }
  np.testing.assert_array_equal(joined['targets'][joined['mask']], ids)
  np.testing.assert_array_equal(
    joined['inputs'][joined['mask']], [EOS, *ids[:-1]]
  )
  # Padding follows the text.
  np.testing.assert_array_equal(np.flatnonzero(joined['mask']), range(12))
  assert set(joined['targets'][~joined['mask']]) <= {EOS}


def test_a_text_that_is_too_short_is_an_error_with_the_limit(tmp_path):
  v = Vocabulary(('a', '<eos>', '<unk>'), (1, 1, 0))
  write_ids(tmp_path / 'valid.ids', ['a a a a a a'], v, 'lines')
  ids = read_ids(tmp_path / 'valid.ids', v)
  for batch_size, window in [(1, 7), (7, 1), (2, 4)]:
    with pytest.raises(
      ValueError,
      match=f'valid.ids has 7 tokens, but batch_size={batch_size} rows of '
      f'window={window} need {batch_size * window + 1}. .* at most 6.',
    ):
      Windows(ids, batch_size, window)
  assert Windows(ids, 2, 3).num_windows == 1


def test_invalid_sizes_and_texts_are_errors():
  with pytest.raises(ValueError, match='batch_size must be at least 1. Got: 0'):
    Windows(IDS, 0, T)
  for make in (
    lambda ids, window: Windows(ids, B, window),
    lambda ids, window: continuous(ids, window, EOS),
  ):
    with pytest.raises(ValueError, match='window must be at least 1. Got: 0'):
      make(IDS, 0)
    with pytest.raises(
      ValueError, match=r'text must be one nonempty row .* \(0,\)'
    ):
      make(IDS[:0], T)
    with pytest.raises(
      ValueError, match=r'text must be one nonempty row .* \(2, 3\)'
    ):
      make(np.zeros((2, 3), np.int32), T)
