"""Unrolls on JAX: ours, Haiku's over our core, and Haiku's LSTM."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import jmp
import numpy as np

from experiments.benchmarks.workers import serve
import rmc_jax
from rmc_jax.parity import checkpoint
from rmc_jax.parity import reference

MATMUL_PRECISION = {
  'float32': 'highest',  # The default on a GPU is TF32.
  'tf32': 'tensorfloat32',
  'bfloat16': 'default',
}
_AXIS = 'devices'
# Of parameters, inputs [T, B, features] and state [B, N, D].
_SPECS = jax.P(), jax.P(None, _AXIS), jax.P(_AXIS)


def load(request, arrays):
  """Loads an unroll, whose batch is split among `devices` as in training."""
  set_precision(request['precision'])
  forward = hk.without_apply_rng(
    hk.transform(functools.partial(_forward, request))
  )
  inputs, state = jnp.asarray(arrays['inputs']), jnp.asarray(arrays['state'])
  if request['name'] == 'hk_lstm':
    params = forward.init(jax.random.key(0), inputs, state)
  else:
    weights = checkpoint.unflatten(reference.below('weights/', arrays))
    params = jax.tree.map(jnp.asarray, weights)
  arguments, mesh = (params, inputs, state), None
  if devices := request.get('devices'):
    mesh = jax.make_mesh((devices,), (_AXIS,))
    shardings = tuple(jax.NamedSharding(mesh, spec) for spec in _SPECS)
    arguments = jax.device_put(arguments, shardings)
  compiled = {}

  def loss_fn(*arguments):
    return jnp.mean(jnp.square(forward.apply(*arguments)))

  def build(step):
    training = step == 'train'
    function = jax.value_and_grad(loss_fn) if training else forward.apply
    if mesh:
      function = _split(function, mesh, training)
    run = jax.jit(function).lower(*arguments).compile()
    compiled[step] = functools.partial(run, *arguments)
    memory = run.memory_analysis()
    facts = {'temp_bytes': memory.temp_size_in_bytes if memory else None}
    return lambda: jax.block_until_ready(compiled[step]()), facts

  def results():
    loss, gradients = compiled['train']()
    return {
      'outputs': np.asarray(compiled['forward']()),
      'loss': np.asarray(loss),
      **checkpoint.flatten({f'gradients/{k}': v for k, v in gradients.items()}),
    }

  return serve.Implementation(about(), build, results, device_memory)


def _forward(request, inputs, state):
  """Returns the outputs [T, B, N * D]."""
  name = request['name']
  if name == 'hk_lstm':
    core = hk.LSTM(state[0].size)
    state = core.initial_state(len(state))
  else:
    core = rmc_jax.RelationalMemory(**request['arguments'])
  if name in ('dynamic_unroll', 'hk_lstm'):
    return hk.dynamic_unroll(core, inputs, state)[0]
  remat = True if name == 'rmc_jax_remat' else None
  return rmc_jax.unroll(core, inputs, state, remat=remat)[0]


def _split(function, mesh, training):
  """Computes a share of the batch on each device."""

  def mean(*arguments):
    return jax.lax.pmean(function(*arguments), _AXIS)

  return jax.shard_map(
    mean if training else function,
    mesh=mesh,
    in_specs=_SPECS,
    out_specs=jax.P() if training else jax.P(None, _AXIS),
    check_vma=False,
  )


def program(step, facts, results=dict):
  """Makes an implementation of a step that is the same for every kind."""
  return serve.Implementation(
    about(), lambda _: (step, facts), results, device_memory
  )


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


if __name__ == '__main__':
  serve.serve(load)
