"""Requests to stop: SIGTERM, SIGINT, or a preempted host.

A single process installs signal handlers. In a job of several processes, JAX's
own handler of SIGTERM makes all of them agree on the call after which to stop,
so none is installed.
"""

import signal
import threading

import jax
from jax.experimental import multihost_utils

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Preemption:
  """A context in which the first signal is only recorded.

  A second signal has its usual effect. In a job of several processes, use one
  instance for the whole program, because JAX counts the calls of `requested`.
  """

  def __init__(self):
    self._received = False
    self._former = {}
    self._calls = 0

  def __enter__(self) -> 'Preemption':
    # Python allows signal handlers in the main thread only.
    main = threading.current_thread() is threading.main_thread()
    if jax.process_count() == 1 and main:
      self._former = {
        number: signal.signal(number, self._record) for number in _SIGNALS
      }
    return self

  def __exit__(self, *exception) -> None:
    for number, handler in self._former.items():
      signal.signal(number, handler)
    self._former = {}

  def requested(self) -> bool:
    """Returns whether to stop now; a collective of all processes."""
    if jax.process_count() > 1:
      # Consecutive numbers, because JAX picks one of them to stop at.
      self._calls += 1
      return multihost_utils.reached_preemption_sync_point(self._calls)
    return self._received

  def _record(self, number, frame) -> None:
    del number, frame
    self._received = True
    self.__exit__()  # A second signal then ends the process.
