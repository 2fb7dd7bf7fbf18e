"""Tests rmc_jax/training/preemption.py in one process.

tests/faults/test_preemption.py tests a job.
"""

import os
import signal

import pytest

from rmc_jax.training.preemption import Preemption

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize('number', SIGNALS)
def test_signal_is_recorded(number):
  with Preemption() as preemption:
    assert not preemption.requested()
    os.kill(os.getpid(), number)
    assert preemption.requested()
    assert preemption.requested()


@pytest.mark.parametrize('number', SIGNALS)
def test_previous_handlers_are_restored(number):
  calls = []
  former = signal.signal(number, lambda *_: calls.append('former'))
  try:
    with Preemption():
      os.kill(os.getpid(), number)
      assert calls == []
      os.kill(os.getpid(), number)  # The second signal has its usual effect.
      assert calls == ['former']
    os.kill(os.getpid(), number)
    assert calls == ['former', 'former']
  finally:
    signal.signal(number, former)


def test_handlers_are_restored_after_an_error():
  former = signal.getsignal(signal.SIGTERM)
  with pytest.raises(ZeroDivisionError), Preemption():
    raise ZeroDivisionError
  assert signal.getsignal(signal.SIGTERM) is former
