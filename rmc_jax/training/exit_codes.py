"""The exit codes that the trainer shares with every launcher, and their errors.

A launcher needs nothing but the number: 0 is done, 75 asks to be started again
with the same arguments, 76 and 77 ask for somebody to look before it is started
again (as it is it would mostly come to the same end), and any other number is a
crash. 75 is EX_TEMPFAIL of sysexits.h; 76 and 77 are its neighbours.
"""

DONE = 0
PREEMPTED = 75
DIVERGED = 76
CONFIGURATION_ERROR = 77


class Preempted(Exception):
  """The run was asked to stop; it saved its state and can be resumed."""

  exit_code = PREEMPTED


class Diverged(Exception):
  """An update was not finite; what came before it is kept.

  Started again, the run begins from the newest checkpoint. Where every update
  of the last call was bad that is one from before, and it fails as before.
  """

  exit_code = DIVERGED


class ConfigurationError(ValueError):
  """The run cannot work as configured; the message is one readable sentence.

  A ValueError, so that code that knows nothing of exit codes can handle it.
  """

  exit_code = CONFIGURATION_ERROR
