"""Unrolls on JAX: ours, Haiku's over our core, and Haiku's LSTM."""

import functools
import math

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np

from experiments.benchmarks.workers import serve
import rmc_jax

MATMUL_PRECISION = {
  'float32': 'highest',  # The default on a GPU is TF32.
  'tf32': 'tensorfloat32',
  'bfloat16': 'default',
}
_AXIS = 'devices'


class Unroll(serve.Implementation):
  """A jitted unroll of parameters, inputs and state.

  With `devices` in the request the batch is split among them, as in training.
  """

  def __init__(self, request, arrays):
    self._mesh = None
    if devices := request.get('devices'):
      self._mesh = jax.make_mesh((devices,), (_AXIS,))
    set_precision(request['precision'])
    forward = hk.without_apply_rng(
      hk.transform(functools.partial(_FORWARD[request['name']], request))
    )
    inputs, state = jnp.asarray(arrays['inputs']), jnp.asarray(arrays['state'])
    if request['name'] == 'hk_lstm':
      params = forward.init(jax.random.key(0), inputs, state)
    else:
      params = _params(arrays)
    self._forward = forward.apply
    self._arguments = params, inputs, state
    if self._mesh:
      self._arguments = tuple(
        jax.device_put(x, jax.NamedSharding(self._mesh, spec))
        for x, spec in zip(self._arguments, _SPECS, strict=True)
      )
    self._functions = {}
    self.about = about()

  def build(self, step):
    """See base class."""
    function = {
      'forward': self._forward,
      'train': jax.value_and_grad(self._loss),
    }[step]
    if self._mesh:
      function = self._split(function, step)
    compiled = jax.jit(function).lower(*self._arguments).compile()
    memory = compiled.memory_analysis()
    facts = {'temp_bytes': memory.temp_size_in_bytes if memory else None}
    self._functions[step] = compiled
    return lambda: jax.block_until_ready(compiled(*self._arguments)), facts

  def results(self):
    """See base class."""
    loss, gradients = self._functions['train'](*self._arguments)
    outputs = self._functions['forward'](*self._arguments)
    results = {'outputs': outputs, 'loss': loss}
    for module, leaves in gradients.items():
      for leaf, value in leaves.items():
        results[f'gradients/{module}/{leaf}'] = value
    return {name: np.asarray(value) for name, value in results.items()}

  def device_memory(self):
    """See base class."""
    return device_memory()

  def _loss(self, params, inputs, state):
    return jnp.mean(jnp.square(self._forward(params, inputs, state)))

  def _split(self, function, step):
    """Computes a share of the batch on each device."""

    def mean(*arguments):
      return jax.lax.pmean(function(*arguments), _AXIS)

    return jax.shard_map(
      mean if step == 'train' else function,
      mesh=self._mesh,
      in_specs=_SPECS,
      out_specs=jax.P() if step == 'train' else jax.P(None, _AXIS),
      check_vma=False,
    )


# Of parameters, inputs [T, B, features] and state [B, N, D].
_SPECS = jax.P(), jax.P(None, _AXIS), jax.P(_AXIS)


def set_precision(precision):
  """Sets the precision of matrix products on accelerators, and of cores."""
  if jax.default_backend() != 'cpu':
    jax.config.update(
      'jax_default_matmul_precision', MATMUL_PRECISION[precision]
    )
  if precision == 'bfloat16':
    policy = jmp.get_policy('params=float32,compute=bfloat16,output=float32')
    hk.mixed_precision.set_policy(rmc_jax.RelationalMemory, policy)
    hk.mixed_precision.set_policy(hk.LSTM, policy)


def about():
  """Returns versions and devices, for the report."""
  return {
    'jax': jax.__version__,
    'haiku': hk.__version__,
    'device': jax.devices()[0].device_kind,
    'devices': jax.device_count(),
  }


def device_memory():
  """Returns (bytes in use, peak bytes) of the first device; None on a CPU."""
  statistics = jax.local_devices()[0].memory_stats()
  if not statistics:
    return None
  return statistics['bytes_in_use'], statistics['peak_bytes_in_use']


def _params(arrays):
  """Nests the arrays named weights/<module>/<parameter>."""
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
  initial_state = core.initial_state(inputs.shape[1])
  outputs, _ = hk.dynamic_unroll(core, inputs, initial_state)
  return outputs


_FORWARD = {
  'rmc_jax': _rmc_jax,
  'plain_jit': _rmc_jax,
  'rmc_jax_remat': functools.partial(_rmc_jax, remat=True),
  'dynamic_unroll': _dynamic_unroll,
  'hk_lstm': _hk_lstm,
}


if __name__ == '__main__':
  serve.serve(Unroll)
