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
# Each id once, so that every token is known by its id: B T W + 1 that are used,
# and 11 of the 14 that may be left out at most.
IDS = np.arange(1000, 1000 + B * T * W + 1 + 11, dtype=np.uint16)
EOS = 2


def test_batches_equal_the_reference():
  windows = Windows(IDS, B, T)
  assert windows.num_windows == W
  for step in range(2 * W + 1):
    inputs, targets, trimmed = reference.window(IDS.tolist(), B, T, step)
    batch = windows.batch_at(step)
    np.testing.assert_array_equal(batch['inputs'], inputs)
    np.testing.assert_array_equal(batch['targets'], targets)
    assert batch['inputs'].dtype == batch['targets'].dtype == np.int32
    assert windows.num_trimmed == trimmed == 11


def test_a_hand_checked_text():
  # 2 rows of 2 windows of 2, and 1 token over.
  windows = Windows(np.arange(10), 2, 2)
  assert (windows.num_windows, windows.num_trimmed) == (2, 1)
  for step, inputs, targets in [
    (0, [[0, 1], [4, 5]], [[1, 2], [5, 6]]),
    (1, [[2, 3], [6, 7]], [[3, 4], [7, 8]]),
    (2, [[0, 1], [4, 5]], [[1, 2], [5, 6]]),
  ]:
    batch = windows.batch_at(step)
    np.testing.assert_array_equal(batch['inputs'], inputs)
    np.testing.assert_array_equal(batch['targets'], targets)


@pytest.mark.parametrize('length', range(B * T + 1, B * T * 3 + 2))
def test_an_epoch_has_each_token_once_and_leaves_out_only_the_end(length):
  windows = Windows(IDS[:length], B, T)
  targets = np.concatenate(
    [windows.batch_at(step)['targets'] for step in range(windows.num_windows)]
  )
  used = length - 1 - windows.num_trimmed
  np.testing.assert_array_equal(np.sort(targets, None), IDS[1 : used + 1])
  assert 0 <= windows.num_trimmed < B * T


def test_a_window_goes_on_where_the_last_one_stopped():
  windows = Windows(IDS, B, T)
  rows = [windows.batch_at(step) for step in range(W)]
  for before, after in zip(rows, rows[1:], strict=False):
    np.testing.assert_array_equal(
      before['targets'][:, -1], after['inputs'][:, 0]
    )
  # The last window of a row ends where the next row begins.
  np.testing.assert_array_equal(
    rows[-1]['targets'][:-1, -1], rows[0]['inputs'][1:, 0]
  )


def test_the_state_starts_anew_once_an_epoch():
  windows = Windows(IDS, B, T)
  resets = np.stack([windows.batch_at(step)['reset'] for step in range(3 * W)])
  assert resets.shape == (3 * W, B)
  np.testing.assert_array_equal(resets.all(axis=1), resets.any(axis=1))
  np.testing.assert_array_equal(np.flatnonzero(resets[:, 0]), [0, W, 2 * W])


def test_a_batch_depends_on_its_step_alone():
  windows, again = Windows(IDS, B, T), Windows(IDS, B, T)
  forth = [windows.batch_at(step) for step in range(W)]
  back = [again.batch_at(step) for step in reversed(range(W))]
  for a, b in zip(forth, reversed(back), strict=True):
    np.testing.assert_array_equal(a['inputs'], b['inputs'])
    np.testing.assert_array_equal(a['reset'], b['reset'])


def test_a_batch_is_a_copy_that_may_be_written_to():
  windows = Windows(np.arange(40, dtype=np.int32), B, T)
  windows.batch_at(0)['inputs'][:] = -1
  np.testing.assert_array_equal(windows.batch_at(0)['inputs'][0], range(T))


@pytest.mark.parametrize('processes', [1, 2, 3, 6])
def test_processes_share_a_batch_without_loss_or_overlap(processes):
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
def test_rows_that_a_batch_has_not_are_refused(rows):
  with pytest.raises(ValueError, match='slice of the 3 rows .* Got: slice'):
    Windows(IDS, B, T).batch_at(0, rows)


def test_no_more_is_read_than_the_rows_asked_for(tmp_path):
  path = tmp_path / 'ids'
  path.touch()
  os.truncate(path, 1 << 28)  # All zeros, none of them on the disk.
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
def test_evaluation_meets_each_token_once_whatever_the_window(window):
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
  # What fills up the last window lies behind the text.
  np.testing.assert_array_equal(np.flatnonzero(joined['mask']), range(12))
  assert set(joined['targets'][~joined['mask']]) <= {EOS}
  resets = [batch['reset'].tolist() for batch in batches]
  assert resets == [[True]] + [[False]] * (len(batches) - 1)


def test_a_text_too_short_is_named_with_what_would_do(tmp_path):
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


def test_bad_sizes_and_texts_are_named():
  with pytest.raises(ValueError, match='batch_size must be at least 1, got 0'):
    Windows(IDS, 0, T)
  for make in (
    lambda ids, window: Windows(ids, B, window),
    lambda ids, window: continuous(ids, window, EOS),
  ):
    with pytest.raises(ValueError, match='window must be at least 1, got 0'):
      make(IDS, 0)
    with pytest.raises(ValueError, match=r'text must be one row .* \(0,\)'):
      make(IDS[:0], T)
    with pytest.raises(ValueError, match=r'text must be one row .* \(2, 3\)'):
      make(np.zeros((2, 3), np.int32), T)
