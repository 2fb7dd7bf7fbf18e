"""Contestants on JAX: our unroll, Haiku's over our core, and Haiku's LSTM."""

import functools
import math
import time

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np

from experiments.benchmarks.contestants import PER_CORE
from experiments.benchmarks.workers import serve
import rmc_jax
from rmc_jax.training import parallel

MATMUL_PRECISION = {
  'float32': 'highest',  # On a GPU the default is TF32.
  'tf32': 'tensorfloat32',
  'bfloat16': 'default',
}


class JaxContestant(serve.Contestant):
  """A jitted unroll; parameters, inputs and state are its arguments.

  The variant 'a device per core' makes each CPU core a device of its own and
  divides the batch among them, as training does.
  """

  def __init__(self, request, arrays):
    self._mapped = request.get('variant') == PER_CORE
    if self._mapped:
      jax.config.update('jax_num_cpu_devices', request['cores'])
    if jax.default_backend() != 'cpu':
      jax.config.update(
        'jax_default_matmul_precision', MATMUL_PRECISION[request['precision']]
      )
    if request['precision'] == 'bfloat16':
      policy = jmp.get_policy('params=float32,compute=bfloat16,output=float32')
      hk.mixed_precision.set_policy(rmc_jax.RelationalMemory, policy)
      hk.mixed_precision.set_policy(hk.LSTM, policy)
    forward = hk.without_apply_rng(
      hk.transform(functools.partial(_FORWARD[request['contestant']], request))
    )
    self._inputs = jnp.asarray(arrays['inputs'])
    self._state = jnp.asarray(arrays['state'])
    if request['contestant'] == 'hk_lstm':
      self._params = forward.init(jax.random.key(0), self._inputs, self._state)
    else:
      self._params = _params(arrays)
    self._forward = forward.apply
    self._compiled = {}
    device = jax.devices()[0]
    self.about = {
      'jax': jax.__version__,
      'haiku': hk.__version__,
      'device': device.device_kind,
      'platform': device.platform,
    }

  def build(self, what):
    """See base class."""
    if self._mapped:
      return self._build_mapped(what)
    function = {
      'forward': self._forward,
      'train': jax.value_and_grad(self._loss),
    }[what]
    arguments = self._params, self._inputs, self._state
    start = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    seconds = time.perf_counter() - start
    self._compiled[what] = compiled
    memory = compiled.memory_analysis()
    facts = {
      'compile_seconds': seconds,
      'temp_bytes': memory.temp_size_in_bytes if memory else None,
    }
    return lambda: jax.block_until_ready(compiled(*arguments)), facts

  def results(self):
    """See base class."""
    arguments = self._params, self._inputs, self._state
    if self._mapped:
      arguments = self._shares
    arrays = {}
    if 'forward' in self._compiled:
      outputs = self._compiled['forward'](*arguments)
      if self._mapped:  # [devices, T, B / devices, ...]
        outputs = np.concatenate(outputs, axis=1)
      arrays['outputs'] = outputs  # [T, B, ...]
    if 'train' in self._compiled:
      arrays['loss'], gradients = self._compiled['train'](*arguments)
      for module, leaves in gradients.items():
        for leaf, value in leaves.items():
          arrays[f'gradients/{module}/{leaf}'] = value
    return {name: np.asarray(value) for name, value in arrays.items()}

  def device_memory(self):
    """See base class."""
    statistics = jax.devices()[0].memory_stats()
    if not statistics:
      return None
    return statistics['bytes_in_use'], statistics['peak_bytes_in_use']

  def _build_mapped(self, what):
    """As training runs, a share of the batch on each device."""
    batch = {'inputs': self._inputs.swapaxes(0, 1), 'state': self._state}
    self._shares = (
      parallel.place_state(self._params),
      parallel.split_batch(batch),
    )

    def on_share(function):
      def mapped(params, share):
        inputs = share['inputs'].swapaxes(0, 1)  # [T, B / devices, features]
        return function(params, inputs, share['state'])

      return mapped

    def mean_gradients(*arguments):
      found = jax.value_and_grad(self._loss)(*arguments)
      return jax.tree.map(lambda x: x / jax.device_count(), found)

    compiled = self._compiled[what] = {
      'forward': _map_shares(on_share(self._forward), self._shares),
      'train': parallel.parallel_sum(on_share(mean_gradients)),
    }[what]
    start = time.perf_counter()
    jax.block_until_ready(compiled(*self._shares))
    facts = {'compile_seconds': time.perf_counter() - start}
    return lambda: jax.block_until_ready(compiled(*self._shares)), facts

  def _loss(self, params, inputs, state):
    return jnp.mean(jnp.square(self._forward(params, inputs, state)))


def _map_shares(function, shares):
  """What pmap is for (replicated, share of each device) -> share of each."""
  axis = jax.P(parallel.AXIS)
  mesh = jax.tree.leaves(shares[1])[0].sharding.mesh
  return jax.jit(
    jax.shard_map(
      lambda replicated, share: function(
        replicated, jax.tree.map(lambda x: x[0], share)
      )[None],
      mesh=mesh,
      in_specs=(jax.P(), axis),
      out_specs=axis,
      check_vma=False,
    )
  )


def _params(arrays):
  """Those named weights/<module>/<parameter>."""
  params = {}
  for name, value in arrays.items():
    if name.startswith('weights/'):
      module, leaf = name.removeprefix('weights/').rsplit('/', 1)
      params.setdefault(module, {})[leaf] = jnp.asarray(value)
  return params


def _rmc_jax(request, inputs, state, remat=None):
  core = rmc_jax.RelationalMemory(**request['arguments'])
  outputs, _ = rmc_jax.unroll(core, inputs, state, remat=remat)
  return outputs


def _dynamic_unroll(request, inputs, state):
  core = rmc_jax.RelationalMemory(**request['arguments'])
  outputs, _ = hk.dynamic_unroll(core, inputs, state)
  return outputs


def _hk_lstm(request, inputs, state):
  del request
  core = hk.LSTM(math.prod(state.shape[1:]))
  outputs, _ = hk.dynamic_unroll(
    core, inputs, core.initial_state(inputs.shape[1])
  )
  return outputs


_FORWARD = {
  'rmc_jax': _rmc_jax,
  'rmc_jax_remat': functools.partial(_rmc_jax, remat=True),
  'dynamic_unroll': _dynamic_unroll,
  'hk_lstm': _hk_lstm,
}


if __name__ == '__main__':
  serve.serve(JaxContestant)
