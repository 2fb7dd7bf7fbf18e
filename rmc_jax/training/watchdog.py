"""Ends a process that makes no progress, with all its stacks in the log.

JAX's heartbeats do not detect a process that is alive but stuck, for which the
others wait in a collective. The timer is that of `faulthandler`, a C thread
that does not need Python's interpreter lock.
"""

import faulthandler
import sys


class Watchdog:
  """A context that ends the process if a heartbeat is overdue.

  The exit code is 1, a crash, and standard error gets the stacks of all
  threads. A process has one watchdog at a time.

  Args:
    seconds: longer than anything between two heartbeats: compiling the update,
      one call of the update, a checkpoint. None or 0 disables the watchdog.
  """

  def __init__(self, seconds: float | None = None):
    self._seconds = seconds

  def __enter__(self) -> 'Watchdog':
    self.heartbeat()
    return self

  def __exit__(self, *exception) -> None:
    if self._seconds:
      faulthandler.cancel_dump_traceback_later()

  def heartbeat(self) -> None:
    """Restarts the timer."""
    if self._seconds:
      faulthandler.dump_traceback_later(
        self._seconds, exit=True, file=sys.__stderr__ or sys.stderr
      )
