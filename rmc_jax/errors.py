"""Exit codes shared by the trainer and every launcher, and their exceptions.

  0   done
  75  preempted; start again with the same arguments (EX_TEMPFAIL of sysexits.h)
  76  diverged; starting again unchanged would usually fail in the same way
  77  configuration error; starting again unchanged fails in the same way

Any other code is a crash. Standard library only, so that launchers can read
this file before anything is installed.
"""

DONE = 0
PREEMPTED = 75
DIVERGED = 76
CONFIGURATION_ERROR = 77


class Preempted(Exception):
  """The run was asked to stop; it saved its state and can be resumed."""

  exit_code = PREEMPTED


class Diverged(Exception):
  """An update was not finite; the checkpoints from before it are kept."""

  exit_code = DIVERGED


class ConfigurationError(ValueError):
  """The run cannot work as configured; the message is one readable sentence.

  A `ValueError`, so that library code that knows no exit codes can catch it.
  """

  exit_code = CONFIGURATION_ERROR
