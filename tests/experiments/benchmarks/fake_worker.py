"""An implementation that behaves according to its name, started by path.

`half` and `third` agree and differ in speed; the others fail in some way.
"""

import os
import sys
import threading
import time

import numpy as np

from experiments.benchmarks.workers import serve

STEP_SECONDS = {'half': 0.02, 'third': 0.03}


def load(request, arrays):
  """Sleeps for a step; the results are the weights that it was given."""
  name, variant = request['name'], request.get('variant')
  print('output of a framework')  # noqa: T201, must not be an answer
  if name == 'dies_at_load':
    if request['process'] == request.get('dies', 0):
      sys.stderr.write('no such library\n')
      os._exit(3)
    time.sleep(60)

  def build(step):
    if name == 'errs' and step == 'forward':
      raise ValueError('no forward [b]')
    if variant == 'never':
      time.sleep(60)
    if name == 'spins':
      threading.Thread(target=spin, daemon=True).start()
    return lambda: run(step), {'temp_bytes': 5000000, 'items': 7}

  def run(step):
    if name == 'dies_later' and step == 'forward':
      os._exit(5)
    if name == 'hangs':
      time.sleep(60)
    if 'log' in request:
      with open(request['log'], 'a') as file:
        file.write(name + '\n')
    slower = 10 if variant == 'slow' else 1
    time.sleep(slower * STEP_SECONDS.get(name, 0.001))

  def results():
    found = {
      key.replace('weights/', 'gradients/'): value
      for key, value in arrays.items()
      if key.startswith('weights/')
    }
    if name == 'lies':
      first = min(found)
      found[first] = found[first] * 1.01
    found['loss'] = np.float32(1 if name != 'diverges' else np.nan)
    found['process'] = np.array(1 + request['process'])
    return found

  return serve.Implementation({'torch': '1.2.3'}, build, results)


def spin():
  while True:
    pass


if __name__ == '__main__':
  serve.serve(load)
