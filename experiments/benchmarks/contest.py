"""Contestants in processes of their own, asked in turn.

Each is a program that answers JSON lines, as workers/serve.py describes, and
rests while another has its turn. So all are timed on the same machine, in the
same minutes, and what slows it down for a while slows each of them.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import selectors
import signal
import statistics
import subprocess
import tempfile
import time
from typing import Any
from typing import NamedTuple

# A turn has at least two steps, so that one hiccup does not decide it, and no
# more than this.
_FEWEST, _MOST = 2, 500


class Failed(Exception):
  """A contestant died, hung or reported an error; the message says which."""


class Worker:
  """A running contestant."""

  def __init__(
    self,
    command: Sequence[str | os.PathLike],
    environment: Mapping[str, str],
    folder: str | os.PathLike,
  ):
    """Starts it.

    Args:
      command: the program and its arguments.
      environment: all of its environment variables.
      folder: where it starts.
    """
    self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed by `stop`
    self._process = subprocess.Popen(
      command,
      env=environment,
      cwd=folder,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._errors,
      start_new_session=True,  # What it starts can be ended with it.
    )
    self._unread = b''

  def ask(self, limit: float, **question: Any) -> dict[str, Any]:
    """Asks one question and waits for the answer.

    Args:
      limit: seconds after which the contestant counts as hung, and is ended.
      **question: `ask` and what belongs to it.

    Raises:
      Failed: there is no answer, or it is an error.
    """
    assert self._process.stdin
    try:
      self._process.stdin.write(json.dumps(question).encode() + b'\n')
      self._process.stdin.flush()
      line = self._read_line(time.monotonic() + limit)
    except (BrokenPipeError, EOFError):
      words, code = self._last_words(), self._process.wait()
      self.stop()
      raise Failed(f'died with exit code {code}: {words}') from None
    except TimeoutError:
      self.stop()
      raise Failed(f'no answer to "{question["ask"]}" in {limit:g} s') from None
    answer = json.loads(line)
    if 'error' in answer:
      self.stop()
      raise Failed(answer['error'])
    return answer

  def cpu_seconds(self) -> float:
    """What it has used of all cores since its start; 0 where unknown."""
    try:
      stat = pathlib.Path(f'/proc/{self._process.pid}/stat').read_text()
    except OSError:
      return 0.0
    user, system = stat.rpartition(')')[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf('SC_CLK_TCK')

  def kill(self) -> None:
    """Ends it, and whatever it has started; a question under way fails."""
    if self._process.poll() is None:
      os.killpg(self._process.pid, signal.SIGKILL)

  def stop(self) -> None:
    """Ends it, and gives back what it held. Not during a question."""
    self.kill()
    self._process.wait()
    self._errors.close()
    for pipe in (self._process.stdin, self._process.stdout):
      assert pipe
      # What was still to be written to it is lost with it.
      with contextlib.suppress(BrokenPipeError):
        pipe.close()

  def _read_line(self, deadline: float) -> bytes:
    assert self._process.stdout
    with selectors.DefaultSelector() as selector:
      selector.register(self._process.stdout, selectors.EVENT_READ)
      while b'\n' not in self._unread:
        if not selector.select(max(0.0, deadline - time.monotonic())):
          raise TimeoutError
        received = os.read(self._process.stdout.fileno(), 1 << 16)
        if not received:
          raise EOFError
        self._unread += received
    line, self._unread = self._unread.split(b'\n', 1)
    return line

  def _last_words(self) -> str:
    self._errors.seek(0)
    lines = self._errors.read().decode(errors='replace').strip().splitlines()
    return lines[-1] if lines else 'it wrote nothing'


class Rounds(NamedTuple):
  """What the rounds measured.

  Attributes:
    seconds: contestant -> seconds of each step, in a list for each round; only
      of those that came through all rounds.
    failures: contestant -> why it did not.
    idle_share: the largest share of one core that a contestant used while
      others had their turns; 0 is what makes the times fair.
  """

  seconds: dict[str, list[list[float]]]
  failures: dict[str, str]
  idle_share: float


def play(
  workers: Mapping[str, Worker],
  what: str,
  *,
  rounds: int,
  turn_seconds: float,
  limit: float,
) -> Rounds:
  """Has the contestants do steps in turn: A B C A B C ...

  Args:
    workers: name -> contestant, which has built `what`.
    what: the question's `what`.
    rounds: how often each has a turn.
    turn_seconds: how long a turn should be; but two steps at least.
    limit: seconds after which a turn counts as hung.
  """
  seconds: dict[str, list[list[float]]] = {name: [] for name in workers}
  steps: dict[str, int] = {}
  failures: dict[str, str] = {}
  busy = dict.fromkeys(workers, 0.0)
  start = time.monotonic()
  before = {name: worker.cpu_seconds() for name, worker in workers.items()}
  for turn in range(-1, rounds):
    for name, worker in workers.items():
      if name in failures:
        continue
      used = worker.cpu_seconds()
      try:
        answer = worker.ask(
          limit, ask='run', what=what, steps=steps.get(name, _FEWEST)
        )
      except Failed as failed:
        failures[name] = str(failed)
        continue
      busy[name] += worker.cpu_seconds() - used
      if turn < 0:  # Warm now, and how long a step takes is known.
        fastest = max(min(answer['seconds']), 1e-9)
        fitting = round(turn_seconds / fastest)
        steps[name] = min(max(fitting, _FEWEST), _MOST)
      else:
        seconds[name].append(answer['seconds'])
  elapsed = time.monotonic() - start
  idle = [
    (worker.cpu_seconds() - before[name] - busy[name]) / elapsed
    for name, worker in workers.items()
    if name not in failures
  ]
  return Rounds(
    {name: value for name, value in seconds.items() if name not in failures},
    failures,
    max(idle, default=0.0),
  )


class Spread(NamedTuple):
  """A median, and the smallest and largest it is the median of."""

  median: float
  low: float
  high: float

  def scaled(self, factor: float) -> 'Spread':
    """All three in another unit."""
    return Spread(*(factor * value for value in self))

  def text(self, form: str) -> str:
    """For a table: the median, and below it the lowest to the highest."""
    low, high = format(self.low, form), format(self.high, form)
    return f'{self.median:{form}}\n({low} to {high})'


def step_time(seconds: Sequence[Sequence[float]]) -> Spread:
  """The median over the rounds of each round's median step, in seconds."""
  return spread([statistics.median(turn) for turn in seconds])


def ratio(
  theirs: Sequence[Sequence[float]], ours: Sequence[Sequence[float]]
) -> Spread:
  """How many times as long they take as we do, in each round; above 1 we win.

  A round's two turns come shortly after each other, so that a machine that is
  slow for a minute does not change their ratio.
  """
  return spread(
    [
      statistics.median(a) / statistics.median(b)
      for a, b in zip(theirs, ours, strict=True)
    ]
  )


def spread(values: Sequence[float]) -> Spread:
  """Of one value for each round."""
  return Spread(statistics.median(values), min(values), max(values))
