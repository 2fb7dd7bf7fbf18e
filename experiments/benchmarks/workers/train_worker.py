"""Trains Nth Farthest as experiments/nth_farthest/train.py does, step by step.

A step is one call of the update, so `updates_per_call` of the preset updates:
examples made on the devices, pmap, Adam, and the metrics read as the training
loop reads them.
"""

import jax

from experiments import configuration
from experiments.benchmarks.workers import serve
from experiments.nth_farthest import train
from rmc_jax import metrics
from rmc_jax import training
from rmc_jax.training import parallel


class Training(serve.Contestant):
  """A run of the preset given, without its logs and checkpoints."""

  def __init__(self, request, arrays):
    del arrays  # It makes its own data and weights.
    preset = request['preset']
    preset['hidden_sizes'] = tuple(preset['hidden_sizes'])  # JSON has no tuple.
    config = configuration.with_preset(train.Config, {'': preset}, '')
    configuration.validate(config)
    functions = train.make_functions(config)
    self._state = parallel.place_state(functions.init())
    self._update = functions.update
    self.about = {
      'jax': jax.__version__,
      'device': jax.devices()[0].device_kind,
      'devices': jax.device_count(),
      'parameters': training.count_parameters(self._state.params),
    }

  def build(self, what):
    """See base class."""
    del what
    return self._step, {}

  def _step(self):
    self._state, sums = self._update(self._state)
    means = metrics.divide(sums)
    if means['nonfinite']:
      raise FloatingPointError(f'An update was not finite: {means}.')


if __name__ == '__main__':
  serve.serve(Training)
