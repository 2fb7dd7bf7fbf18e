"""Ends a process that no longer gets anywhere, with all its stacks in the log.

A peer that is alive but stuck is noticed by nobody: the others wait for it in a
collective, and the heartbeats of all of them go on. So each process counts for
itself. The clock is `faulthandler`'s, a thread in C that needs nothing of
Python's, not even its lock, when it strikes.
"""

from collections.abc import Iterator
import contextlib
import faulthandler
import sys

_seconds: float | None = None


@contextlib.contextmanager
def watch(seconds: float | None) -> Iterator[None]:
  """Within it, a pause of more than `seconds` between beats ends the process.

  With exit code 1, which launchers count as a crash, and the stacks of all
  threads on standard error. There is one watchdog in a process.

  Args:
    seconds: longer than anything that comes between two beats: compiling the
      update, an evaluation, the updates of a call. None: no watchdog.
  """
  global _seconds
  _seconds = seconds
  beat()
  try:
    yield
  finally:
    _seconds = None
    faulthandler.cancel_dump_traceback_later()


def beat() -> None:
  """Tells that something was done; nothing without `watch`."""
  if _seconds is not None:
    faulthandler.dump_traceback_later(
      _seconds, exit=True, file=sys.__stderr__ or sys.stderr
    )
