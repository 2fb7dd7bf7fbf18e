"""A contestant whose behaviour is its name; started by path, with two words.

`half` and `third` agree and differ in speed; the others are for what can go
wrong. It speaks through the same `serve` as the real ones.
"""

import os
import sys
import time

import numpy as np

from experiments.benchmarks.workers import serve

STEP_SECONDS = {'half': 0.02, 'third': 0.03}


class Fake(serve.Contestant):
  """Sleeps for a step; its results are the weights it was given."""

  about = {'torch': '1.2.3'}

  def __init__(self, request, arrays):
    self.name = request['contestant']
    self.variant = request['variant']
    self.weights = {k: v for k, v in arrays.items() if k.startswith('weights/')}
    print('a framework says something')  # noqa: T201, must not be an answer
    if self.name == 'dies_at_load':
      sys.stderr.write('no such library\n')
      os._exit(3)

  def build(self, what):
    self.what = what
    if self.name == 'errs' and what == 'forward':
      raise ValueError('no forward [b]')
    if self.variant == 'never':
      time.sleep(60)
    return self.step, {'temp_bytes': 5000000}

  def step(self):
    if self.name == 'dies_later' and self.what == 'forward':
      os._exit(5)
    if self.name == 'hangs':
      time.sleep(60)
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
    return results


if __name__ == '__main__':
  serve.serve(Fake)
