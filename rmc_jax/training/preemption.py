"""Whether the run has been asked to stop: SIGTERM, SIGINT, a preempted host.

One process has handlers of its own. In a job of several, JAX's notifier catches
SIGTERM and lets all processes agree on the call after which they stop; a
handler of ours would take its place, so there is none.
"""

import signal
import threading

import jax
from jax.experimental import multihost_utils

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Preemption:
  """A context in which a request to stop is noted instead of obeyed at once.

  The first signal is noted; a second one acts as it would have without us.
  """

  # Of all contexts of the process: JAX wants numbers that go on.
  _calls = 0

  def __init__(self):
    self._received: int | None = None
    self._former = {}

  def __enter__(self) -> 'Preemption':
    # Python lets only the main thread of the process set handlers.
    main = threading.current_thread() is threading.main_thread()
    if jax.process_count() == 1 and main:
      self._former = {
        number: signal.signal(number, self._note) for number in _SIGNALS
      }
    return self

  def __exit__(self, *exception) -> None:
    self._restore_handlers()

  def requested(self) -> bool:
    """Whether to stop now; every process must ask after each of its calls."""
    if jax.process_count() > 1:
      # Consecutive numbers: the sync point is one of them, and a counter that
      # skips (several updates a call) would jump over it.
      Preemption._calls += 1
      return multihost_utils.reached_preemption_sync_point(Preemption._calls)
    return self._received is not None

  def _note(self, number, frame) -> None:
    del frame
    self._received = number
    self._restore_handlers()

  def _restore_handlers(self) -> None:
    for number, handler in self._former.items():
      signal.signal(number, handler)
    self._former = {}
