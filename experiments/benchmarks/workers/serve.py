"""Answers the questions of experiments/benchmarks/harness.py.

One JSON object per line, questions on standard input, answers on the standard
output that the process started with:

  {"ask": "load", ...}                              {"about": {...}}
  {"ask": "build", "step": "train"}                 {"seconds": 1.5, ...}
  {"ask": "memory", "step": "train"}                {"memory_bytes": 1234, ...}
  {"ask": "check", "path": "x.npz"}                 {}
  {"ask": "run", "step": "train", "count": 5}       {"seconds": [0.1, ...]}

A question that fails is answered with {"error": "ValueError: ..."}. Every
question has a "process", the index among the processes of one job. Between
questions the process waits for the pipe and does nothing.
"""
# The rest of the project is Python 3.11; this file must stay valid 3.7.

from collections.abc import Callable
import contextlib
import ctypes
import json
import os
import sys
import time
import traceback
from typing import NamedTuple

import numpy as np


class Implementation(NamedTuple):
  """What a worker loads.

  Attributes:
    about: versions and the device, for the report.
    build: 'train' or 'forward' -> (function, dict of facts). The function does
      one step and returns when all its results are there. Compilation, here or
      in the first call, counts as part of the build.
    results: () -> {name: array}, from all steps built, for the agreement check.
    device_memory: () -> (bytes in use, peak bytes) of an accelerator, or None.
  """

  about: dict
  build: Callable
  results: Callable = dict
  device_memory: Callable = lambda: None


def serve(load):
  """Answers questions about load(request, arrays), an Implementation."""
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)  # Keeps what a framework prints out of the answers.
  session = _Session(load)
  for line in sys.stdin:
    request = json.loads(line)
    try:
      answer = getattr(session, request['ask'])(request)
    except Exception as error:
      traceback.print_exc()
      text = traceback.format_exception_only(type(error), error)
      answer = {'error': ''.join(text).splitlines()[0]}
    answers.write(json.dumps(answer) + '\n')
    answers.flush()


class _Session:
  """Answers each question in the method of its name."""

  def __init__(self, load):
    self._load = load
    self._steps = {}
    self._base = 0  # bytes in use before the first build

  def load(self, request):
    arrays = dict(np.load(request['arrays'])) if 'arrays' in request else {}
    self._implementation = self._load(request, arrays)
    return {'about': self._implementation.about}

  def build(self, request):
    if not self._steps:
      device = self._implementation.device_memory()
      _trim()
      self._base = device[0] if device else _status_bytes('VmRSS') or 0
    start = time.perf_counter()
    step, facts = self._implementation.build(request['step'])
    step()
    seconds = time.perf_counter() - start
    self._steps[request['step']] = step
    return dict(facts, seconds=seconds)

  def memory(self, request):
    """Measures the peak of two steps, and how much a build has added to it."""
    _trim()
    # Where the kernel refuses this, the peak is that since the start.
    with contextlib.suppress(OSError), open('/proc/self/clear_refs', 'w') as f:
      f.write('5')
    for _ in range(2):
      self._steps[request['step']]()
    device = self._implementation.device_memory()
    peak = device[1] if device else _status_bytes('VmHWM')
    above = None if peak is None else peak - self._base
    return {'memory_bytes': above, 'peak_bytes': peak}

  def check(self, request):
    results = self._implementation.results()
    if request['process'] == 0:
      np.savez(request['path'], **results)
    return {}

  def run(self, request):
    step, seconds = self._steps[request['step']], []
    step()  # Caches and pages belonged to other implementations.
    for _ in range(request['count']):
      start = time.perf_counter()
      step()
      seconds.append(time.perf_counter() - start)
    _trim()
    return {'seconds': seconds}


def _trim():
  """Returns freed memory to the kernel."""
  with contextlib.suppress(AttributeError, OSError):  # Not with glibc.
    ctypes.CDLL(None).malloc_trim(0)


def _status_bytes(field):
  """Reads a size from /proc/self/status; None where there is no such file."""
  with contextlib.suppress(OSError), open('/proc/self/status') as file:
    for line in file:
      if line.startswith(field + ':'):
        return int(line.split()[1]) * 1024
  return None
