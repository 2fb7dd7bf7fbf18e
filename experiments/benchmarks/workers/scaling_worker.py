"""An update of one core by Adam, under pmap on some devices or without it.

A process for each number of devices, or one of several processes of a job.
Without pmap it is the same step under plain `jax.jit` on one device, with an
axis of one where pmap has its devices, so that nothing is exchanged.
"""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.sizes import Size
from experiments.benchmarks.workers import serve
import rmc_jax
from rmc_jax import training
from rmc_jax.training import distributed
from rmc_jax.training import parallel
from rmc_jax.training import update


class Update(serve.Contestant):
  """Trains on one global batch, the same in every layout, again and again."""

  def __init__(self, request, arrays):
    del arrays
    if request['processes'] > 1:
      distributed.initialize(
        request['coordinator'], request['processes'], request['process']
      )
    size = Size(**request['size'])
    network = hk.without_apply_rng(
      hk.transform(lambda inputs: _forward(size, inputs))
    )
    rng = np.random.default_rng(0)
    shape = (size.batch, size.steps, size.features)
    inputs = rng.standard_normal(shape, np.float32)
    optimizer = training.make_optimizer(training.OptimizerConfig())
    params = jax.jit(network.init)(jax.random.key(1), inputs[:1])
    state = training.create_state(params, {}, optimizer, jax.random.key(2))

    def loss_fn(params, network_state, key, batch):
      del key
      squares = jnp.square(network.apply(params, batch))  # [B, T, N * D]
      loss, weight = squares.mean((1, 2)).sum(), jnp.float32(len(batch))
      return loss, training.LossAux(weight, {}, network_state)

    if request['mapped']:
      devices = _devices(request['devices'])
      self._state = parallel.place_state(state, devices)
      rows = parallel.process_rows(size.batch, devices)
      self._batch = parallel.split_batch(inputs[rows], devices)
      self._update = training.make_update(
        loss_fn, optimizer, global_batch_size=size.batch, devices=devices
      )
    else:
      self._state, self._batch = jax.device_put((state, inputs))
      step = jax.vmap(
        update.make_step(loss_fn, optimizer),
        in_axes=None,
        out_axes=None,
        axis_name=parallel.AXIS,
        axis_size=1,
      )
      self._update = jax.jit(step, donate_argnums=0)
    self._losses = []
    self.about = {
      'jax': jax.__version__,
      'device': jax.devices()[0].device_kind,
    }

  def build(self, what):
    """See base class."""
    del what
    return self._step, {}

  def results(self):
    """The losses of the first two updates: the second has seen a gradient."""
    while len(self._losses) < 2:
      self._step()
    return {'losses': np.array(self._losses[:2])}

  def _step(self):
    self._state, sums = self._update(self._state, self._batch)
    loss, weight = sums['loss']
    self._losses.append(float(loss / weight))  # Waits, as a log would.
    jax.block_until_ready(self._state)


def _forward(size, inputs):
  core = rmc_jax.RelationalMemory(**size.arguments())
  outputs, _ = rmc_jax.unroll(
    core, inputs, core.initial_state(len(inputs)), time_major=False
  )
  return outputs


def _devices(count):
  devices = jax.devices()
  if len(devices) < count:
    raise RuntimeError(
      f'{count} devices are asked for; there are {len(devices)}.'
    )
  return devices[:count]


if __name__ == '__main__':
  serve.serve(Update)
