"""Tests rmc_jax/training/goodput.py with a fake clock."""

import pytest

from rmc_jax.errors import ConfigurationError
from rmc_jax.training import goodput


class Clock:
  """A clock that tests set."""

  def __init__(self):
    self.now = 1000.0

  def __call__(self):
    return self.now


def spend(ledger, clock, **kinds):
  for kind, seconds in kinds.items():
    ledger.enter(kind)
    clock.now += seconds
  ledger.enter('other')


def test_every_second_counts_once(tmp_path):
  clock = Clock()
  ledger = goodput.Ledger(tmp_path, 0, clock=clock)
  clock.now += 2
  spend(ledger, clock, compile=3, data=5, step=7, evaluation=11, checkpoint=13)
  spend(ledger, clock, step=17)
  ledger.write(40)
  (start,) = goodput.read_ledger(tmp_path)
  assert start['step'] == 40
  assert start['seconds'] == pytest.approx(
    {
      'start': 2,
      'compile': 3,
      'data': 5,
      'step': 24,
      'evaluation': 11,
      'checkpoint': 13,
      'other': 0,
    },
    abs=0.1,
  )
  total = goodput.summarize([start])
  assert sum(total.values()) == pytest.approx(start['until'] - start['since'])


def test_unsaved_work_is_lost(tmp_path):
  clock = Clock()
  first = goodput.Ledger(tmp_path, 0, clock=clock)
  spend(first, clock, compile=2, step=10)
  first.saved(20)
  spend(first, clock, step=20, evaluation=1)
  first.saved(40)
  spend(first, clock, step=5, data=3)
  first.write(50)
  # The checkpoint of step 40 is damaged.
  second = goodput.Ledger(tmp_path, 20, clock=clock)
  spend(second, clock, compile=4, step=30)
  second.write(60)
  starts = goodput.read_ledger(tmp_path)
  assert [start['from_step'] for start in starts] == [0, 20]
  total = goodput.summarize(starts)
  assert total['step'] == pytest.approx(10 + 30)
  assert total['compile'] == pytest.approx(2 + 4)
  assert total['lost'] == pytest.approx(20 + 1 + 5 + 3)
  assert total['evaluation'] == total['data'] == 0


def test_start_without_a_checkpoint_is_lost(tmp_path):
  clock = Clock()
  for _ in range(2):
    ledger = goodput.Ledger(tmp_path, 0, clock=clock)
    spend(ledger, clock, step=7)
    ledger.write(10)
  total = goodput.summarize(goodput.read_ledger(tmp_path))
  assert total['step'] == pytest.approx(7)
  assert total['lost'] == pytest.approx(7)


def test_work_after_the_last_checkpoint_is_lost_without_a_new_step(tmp_path):
  clock = Clock()
  first = goodput.Ledger(tmp_path, 0, clock=clock)
  spend(first, clock, step=10)
  first.saved(20)
  spend(first, clock, step=3)  # The call that crashes.
  first.write(20)
  second = goodput.Ledger(tmp_path, 20, clock=clock)
  spend(second, clock, step=5)
  second.write(30)
  total = goodput.summarize(goodput.read_ledger(tmp_path))
  assert total['step'] == pytest.approx(15)
  assert total['lost'] == pytest.approx(3)


def test_write_pauses_between_writes(tmp_path):
  clock = Clock()
  ledger = goodput.Ledger(tmp_path, 0, clock=clock)
  for step in range(1, 5):
    spend(ledger, clock, step=1)
    ledger.write(step, pause=2.5)
    (start,) = goodput.read_ledger(tmp_path)
    assert start['step'] == (1 if step < 4 else 4)


def test_damaged_ledger_names_the_file(tmp_path):
  path = tmp_path / goodput.FILE_NAME
  path.write_text('{"from_step": 0}\n{"from_step": 5, ')
  with pytest.raises(ConfigurationError, match=f'{path} is damaged.* Remove'):
    goodput.Ledger(tmp_path, 5)


def test_time_between_starts_is_down():
  seconds = dict.fromkeys(goodput.KINDS, 0.0) | {'step': 10.0}
  start = {'from_step': 0, 'step': 5, 'seconds': seconds}
  starts = [
    start | {'since': 100.0, 'until': 110.0, 'saved': [[5, seconds]]},
    start | {'since': 117.0, 'until': 127.0, 'saved': [], 'from_step': 5},
  ]
  total = goodput.summarize(starts)
  assert total['down'] == 7
  assert sum(total.values()) == 127 - 100
  assert goodput.describe(total).startswith(
    'Goodput 74.1% of 0:00:27: step 74.1%, down 25.9%'
  )


def test_process_start_time_is_before_now():
  assert goodput.process_start_time() < goodput.time.time()
