"""The sum of one array over all devices, as large as a core's gradient."""

import jax
import numpy as np

from experiments.benchmarks import counts
from experiments.benchmarks.sizes import Size
from experiments.benchmarks.workers import serve
from rmc_jax.training import distributed
from rmc_jax.training import parallel


class AllReduce(serve.Contestant):
  """A contestant of experiments/benchmarks/scaling_model.py."""

  def __init__(self, request, arrays):
    del arrays
    if request['processes'] > 1:
      distributed.initialize(
        request['coordinator'], request['processes'], request['process']
      )
    devices = jax.devices()[: request['devices']]
    count = counts.parameters(Size(**request['size']))
    local = len(devices) // request['processes']
    ones = np.ones((local, count), np.float32)
    self._batch = parallel.split_batch(ones, devices)
    self._scale = parallel.place_state(np.float32(1), devices)
    self._total = parallel.parallel_sum(
      lambda scale, share: scale * share[0], devices
    )
    self.about = {'jax': jax.__version__, 'devices': len(devices)}

  def build(self, what):
    """See base class."""
    del what
    return self._step, {}

  def results(self):
    """The sum: as many ones as there are devices."""
    return {'sum': np.asarray(self._step())}

  def _step(self):
    return jax.block_until_ready(self._total(self._scale, self._batch))


if __name__ == '__main__':
  serve.serve(AllReduce)
