"""Tests `rmc_jax.training.preemption` in one process.

For several see `test_loop.py`.
"""

import os
import signal

import pytest

from rmc_jax.training.preemption import Preemption

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize('number', SIGNALS)
def test_a_signal_is_noted(number):
  with Preemption() as preemption:
    assert not preemption.requested()
    os.kill(os.getpid(), number)
    assert preemption.requested()
    assert preemption.requested()


@pytest.mark.parametrize('number', SIGNALS)
def test_the_former_handlers_come_back(number):
  calls = []
  former = signal.signal(number, lambda *_: calls.append('former'))
  try:
    with Preemption():
      os.kill(os.getpid(), number)
      assert calls == []
      os.kill(os.getpid(), number)  # The second time in earnest.
      assert calls == ['former']
    os.kill(os.getpid(), number)
    assert calls == ['former', 'former']
  finally:
    signal.signal(number, former)


def test_the_handlers_come_back_after_an_error():
  former = signal.getsignal(signal.SIGTERM)
  with pytest.raises(ZeroDivisionError), Preemption():
    raise ZeroDivisionError
  assert signal.getsignal(signal.SIGTERM) is former
