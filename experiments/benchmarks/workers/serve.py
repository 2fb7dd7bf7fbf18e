"""The conversation a contestant has with experiments/benchmarks/contest.py.

One JSON object a line, a question on standard input, an answer on the standard
output that the process started with:

  {"ask": "load", ...}                           {"about": {...}}
  {"ask": "build", "what": "train"}              {"seconds": 1.5, ...}
  {"ask": "check", "path": "x.npz"}              {}
  {"ask": "run", "what": "train", "steps": 5}    {"seconds": [0.1, ...]}
  {"ask": "memory", "what": "train", ...}        {"bytes": 123456}
  {"ask": "quit"}                                {}

`what` is 'train', a training step, or 'forward'. A question that fails is
answered with {"error": "ValueError: ..."}. Between two questions the process
waits for the pipe and does nothing; so one step comes before those that "run"
counts.
"""
# The rest of the project is Python 3.11; this file must stay valid 3.7.

import contextlib
import ctypes
import json
import os
import sys
import time
import traceback

import numpy as np


class Contestant:
  """What a worker makes of {"ask": "load"}.

  `about` is a dict for the report: versions, the device, what was chosen.
  """

  about = {}

  def build(self, what):
    """Returns (step, facts): a function that does one step, and a dict.

    The step returns when all of its results are there. Whatever is compiled is
    compiled here or by the first step, which is counted to the build.
    """
    raise NotImplementedError

  def results(self):
    """Name -> array, of all that is built.

    `outputs` [T, B, N * D] of 'forward'; `loss` and `gradients/<weight>` of
    'train'.
    """
    raise NotImplementedError

  def device_memory(self):
    """(bytes in use, peak bytes) of an accelerator; None on a CPU."""


def serve(load):
  """Answers until told to quit or left alone.

  Args:
    load: (request dict, name -> array) -> Contestant.
  """
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)  # What a framework prints is no answer.
  session = _Session(load)
  for line in sys.stdin:
    request = json.loads(line)
    try:
      answer = getattr(session, request['ask'])(request)
    except Exception as error:
      traceback.print_exc()
      said = traceback.format_exception_only(type(error), error)
      answer = {'error': ''.join(said).splitlines()[0]}
    answers.write(json.dumps(answer) + '\n')
    answers.flush()
    if request['ask'] == 'quit':
      return


class _Session:
  """The questions, by name."""

  def __init__(self, load):
    self._load = load
    self._contestant = Contestant()
    self._steps = {}
    self._before = 0  # bytes held before the first build

  def load(self, request):
    arrays = {}
    if 'arrays' in request:
      with np.load(request['arrays']) as file:
        arrays = dict(file)
    self._contestant = self._load(request, arrays)
    return {'about': self._contestant.about}

  def build(self, request):
    if not self._steps:
      self._before = self._held()
    start = time.perf_counter()
    step, facts = self._contestant.build(request['what'])
    step()
    seconds = time.perf_counter() - start
    self._steps[request['what']] = step
    return dict(facts, seconds=seconds)

  def check(self, request):
    np.savez(request['path'], **self._contestant.results())
    return {}

  def run(self, request):
    step, seconds = self._steps[request['what']], []
    step()  # Uncounted: the others' turns have taken its caches and pages.
    for _ in range(request['steps']):
      start = time.perf_counter()
      step()
      seconds.append(time.perf_counter() - start)
    return {'seconds': seconds}

  def memory(self, request):
    """Peak during some steps, above what was held before the first build."""
    _trim()
    _reset_peak()
    for _ in range(request['steps']):
      self._steps[request['what']]()
    device = self._contestant.device_memory()
    peak = device[1] if device else _status_bytes('VmHWM')
    return {'bytes': None if peak is None else peak - self._before}

  def quit(self, request):
    del request
    return {}

  def _held(self):
    device = self._contestant.device_memory()
    if device:
      return device[0]
    _trim()
    return _status_bytes('VmRSS') or 0


def _trim():
  """Gives freed memory back, so that what is held is what is needed."""
  with contextlib.suppress(AttributeError, OSError):  # Not with glibc.
    ctypes.CDLL(None).malloc_trim(0)


def _reset_peak():
  # Not on Linux, or not allowed: then the peak is that since the start.
  with contextlib.suppress(OSError), open('/proc/self/clear_refs', 'w') as file:
    file.write('5')


def _status_bytes(field):
  """A size in /proc/self/status; None where there is no such file."""
  try:
    with open('/proc/self/status') as file:
      lines = file.read().splitlines()
  except OSError:
    return None
  (line,) = [line for line in lines if line.startswith(field + ':')]
  return int(line.split()[1]) * 1024
