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


class Fake(serve.Implementation):
  """Sleeps for a step; the results are the weights that it was given."""

  about = {'torch': '1.2.3'}

  def __init__(self, request, arrays):
    self.name = request['name']
    self.variant = request.get('variant')
    self.log = request.get('log')
    self.process = request['process']
    self.weights = {k: v for k, v in arrays.items() if k.startswith('weights/')}
    print('output of a framework')  # noqa: T201, must not be an answer
    if self.name == 'dies_at_load' and self.process == request.get('dies', 0):
      sys.stderr.write('no such library\n')
      os._exit(3)
    if self.name == 'dies_at_load':
      time.sleep(60)

  def build(self, step):
    if self.name == 'errs' and step == 'forward':
      raise ValueError('no forward [b]')
    if self.variant == 'never':
      time.sleep(60)
    if self.name == 'spins':
      threading.Thread(target=spin, daemon=True).start()
    return lambda: self.step(step), {'temp_bytes': 5000000, 'items': 7}

  def step(self, step):
    if self.name == 'dies_later' and step == 'forward':
      os._exit(5)
    if self.name == 'hangs':
      time.sleep(60)
    if self.log:
      with open(self.log, 'a') as file:
        file.write(self.name + '\n')
    slower = 10 if self.variant == 'slow' else 1
    time.sleep(slower * STEP_SECONDS.get(self.name, 0.001))

  def results(self):
    results = {
      name.replace('weights/', 'gradients/'): value
      for name, value in self.weights.items()
    }
    if self.name == 'lies':
      first = min(results)
      results[first] = results[first] * 1.01
    results['loss'] = np.float32(1 if self.name != 'diverges' else np.nan)
    results['process'] = np.array(1 + self.process)
    return results


def spin():
  while True:
    pass


if __name__ == '__main__':
  serve.serve(Fake)
