"""Runs the computations of the parity suite with rmc_jax."""

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rmc_jax.cores import RelationalMemory
from rmc_jax.cores.layers import LayerNorm
from rmc_jax.cores.layers import Linear
from rmc_jax.parity.adam import tensorflow_adam
from rmc_jax.parity.convert import from_sonnet
from rmc_jax.parity.convert import to_sonnet
from rmc_jax.parity.reference import below
from rmc_jax.parity.reference import Computation
from rmc_jax.parity.reference import PRECISIONS
from rmc_jax.parity.reference_runner import refusal
from rmc_jax.parity.reference_runner import spreads
from rmc_jax.tasks import nth_farthest
from rmc_jax.unroll import unroll

Arrays = dict[str, Any]


def compute(computation: Computation, dtype: Any) -> dict[str, np.ndarray]:
  """Runs a computation in float32 or float64; results as the original's.

  Raises:
    TypeError: a result has another dtype.
  """
  dtype = np.dtype(dtype)
  with jax.enable_x64(dtype == np.float64):
    given = {
      name: value.astype(dtype) for name, value in computation.arrays.items()
    }
    results = _KINDS[computation.kind](computation.settings, given)
    results = {name: np.asarray(value) for name, value in results.items()}
  for name, value in results.items():
    if value.dtype != dtype:
      raise TypeError(f'{name} is {value.dtype}, expected {dtype}.')
  return results


def compute_in_both_precisions(
  computation: Computation,
) -> list[dict[str, np.ndarray]]:
  """The results of a computation in each of `PRECISIONS`."""
  return [compute(computation, dtype) for dtype in PRECISIONS]


def _linear(settings: dict[str, Any], given: Arrays) -> Arrays:
  layer = _function(lambda x: Linear(settings['size'], name='linear')(x))
  params = {'linear': below('weights/linear/', given)}
  return {'outputs': _jit(layer)(params, given['inputs'])}


def _layer_norm(settings: dict[str, Any], given: Arrays) -> Arrays:
  del settings
  layer = _function(lambda x: LayerNorm(name='layer_norm')(x))
  weights = below('weights/layer_norm/', given)
  params = {
    'layer_norm': {'scale': weights['gamma'], 'offset': weights['beta']}
  }
  return {'outputs': _jit(layer)(params, given['inputs'])}


def _unroll(settings: dict[str, Any], given: Arrays) -> Arrays:
  apply = _core_function(settings, len(given['inputs']))
  params = from_sonnet(below('weights/', given))
  arguments = params, given['inputs'], given['state']
  cotangents = below('cotangents/', given)
  if not cotangents:
    return _jit(apply)(*arguments)

  def loss_fn(*arguments):
    results = apply(*arguments)
    loss = jnp.sum(results['outputs'] * cotangents['outputs'])
    return loss + jnp.sum(results['state'] * cotangents['state']), results

  differentiate = _jit(jax.grad(loss_fn, argnums=(0, 1, 2), has_aux=True))
  (d_params, d_inputs, d_state), results = differentiate(*arguments)
  for name, gradient in to_sonnet(d_params).items():
    results[f'gradients/weights/{name}'] = gradient
  return results | {'gradients/inputs': d_inputs, 'gradients/state': d_state}


def _train(settings: dict[str, Any], given: Arrays) -> Arrays:
  apply = _core_function(settings, given['inputs'].shape[1])
  optimizer = tensorflow_adam(
    settings['learning_rate'], epsilon=settings['epsilon']
  )

  def loss_fn(params, inputs, targets):
    results = apply(params, inputs, given['state'])
    return jnp.mean(jnp.square(results['outputs'] - targets))

  def update(carry, batch):
    params, optimizer_state = carry
    loss, gradients = jax.value_and_grad(loss_fn)(params, *batch)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state)
    return (optax.apply_updates(params, updates), optimizer_state), loss

  def run(params, batches):
    carry = params, optimizer.init(params)
    (params, _), losses = jax.lax.scan(update, carry, batches)
    return params, losses

  params = from_sonnet(below('weights/', given))
  params, losses = _jit(run)(params, (given['inputs'], given['targets']))
  weights = {f'weights/{n}': value for n, value in to_sonnet(params).items()}
  return {'losses': losses, **weights}


def _core_function(
  settings: dict[str, Any], num_steps: int
) -> Callable[..., Arrays]:
  """Returns (params, inputs, state) -> results: a call of the core if T is 1.

  The trace is that of a separate call or unroll.
  """
  matrix: dict[str, Any] = {
    'treat_input_as_matrix': settings['treat_input_as_matrix']
  }

  def run(inputs, state):
    core = RelationalMemory(
      **settings['arguments'], query_scale=settings['query_scale']
    )
    if num_steps == 1:
      outputs, final = core(inputs[0], state, **matrix)
      projected = core.project(inputs[0], **matrix)
      (_, trace), _ = core.trace_step(projected, state)
      outputs, trace = jax.tree.map(lambda x: x[None], (outputs, trace))
    else:
      outputs, final = unroll(core, inputs, state, **matrix)
      (_, trace), _ = unroll(core, inputs, state, return_trace=True, **matrix)
    results = {'outputs': outputs, 'state': final, 'attention': trace.attention}
    gates = {f'{name}_gate': value for name, value in trace.gates.items()}
    return results | gates

  return _function(run)


def _create(settings: dict[str, Any], given: Arrays) -> Arrays:
  def initial_state():
    core = RelationalMemory(**settings['arguments'])
    core(given['inputs'][0], given['state'])
    return core.initial_state(len(given['state']))

  create = hk.transform(initial_state)
  try:
    params = create.init(jax.random.key(settings['seed']))
  except (TypeError, ValueError) as error:
    results = refusal(error)
  else:
    results = spreads(to_sonnet(params))
    results['state'] = create.apply(params, None)
  dtype = given['state'].dtype
  return {name: value.astype(dtype) for name, value in results.items()}


def _nth_farthest(settings: dict[str, Any], given: Arrays) -> Arrays:
  del settings
  order = given['order'].astype(int)  # [B, O], also the labels
  questions = nth_farthest.Question(
    vectors=jnp.take_along_axis(given['vectors'], order[..., None], axis=1),
    labels=order,
    n=given['n'].astype(int),
    m=given['m'].astype(int),
  )
  inputs = jax.vmap(nth_farthest.encode)(questions)
  # Ours is (x; label; n; m), as in the paper; theirs is (x; label; m; n).
  width, objects = inputs.shape[-1], order.shape[1]
  rest, n, m = jnp.split(
    inputs, [width - 2 * objects, width - objects], axis=-1
  )
  labels = jax.vmap(lambda q: nth_farthest.answer(q, 'nearest'))(questions)
  return {
    'inputs': jnp.concatenate([rest, m, n], axis=-1),
    'labels': labels.astype(inputs.dtype),
  }


_KINDS = {
  'linear': _linear,
  'layer_norm': _layer_norm,
  'unroll': _unroll,
  'train': _train,
  'create': _create,
  'nth_farthest': _nth_farthest,
}


def _jit(f: Any) -> Any:
  """`jax.jit`, less optimised in float64 to halve the time to compile.

  Float64 checks the mathematics only. The float32 numbers are those that users
  get.
  """
  is_double = jnp.result_type(float) == np.float64
  options = {'xla_backend_optimization_level': 0} if is_double else None
  return jax.jit(f, compiler_options=options)


def _function(f: Any) -> Any:
  """Transforms a function that uses Haiku modules to (params, *args)."""
  return hk.without_apply_rng(hk.transform(f)).apply
