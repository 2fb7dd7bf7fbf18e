"""Runs the computations of the parity suite with rmc_jax."""

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
    if computation.arrays and value.dtype != dtype:
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
  apply = _function(_step if len(given['inputs']) == 1 else _steps)
  params = from_sonnet(below('weights/', given))
  arguments = _core_arguments(settings)
  matrix = settings['treat_input_as_matrix']
  cotangents = below('cotangents/', given)

  def run(params, inputs, state):
    results = apply(params, arguments, inputs, state, matrix)
    loss = jnp.sum(results['outputs'] * cotangents.get('outputs', 0.0))
    loss += jnp.sum(results['state'] * cotangents.get('state', 0.0))
    return loss, results

  if not cotangents:
    return _jit(run)(params, given['inputs'], given['state'])[1]
  differentiate = _jit(jax.grad(run, argnums=(0, 1, 2), has_aux=True))
  (d_params, d_inputs, d_state), results = differentiate(
    params, given['inputs'], given['state']
  )
  for name, gradient in to_sonnet(d_params).items():
    results[f'gradients/weights/{name}'] = gradient
  results['gradients/inputs'] = d_inputs
  results['gradients/state'] = d_state
  return results


def _train(settings: dict[str, Any], given: Arrays) -> Arrays:
  apply = _function(_step if given['inputs'].shape[1] == 1 else _steps)
  arguments = _core_arguments(settings)
  matrix = settings['treat_input_as_matrix']
  optimizer = tensorflow_adam(
    settings['learning_rate'], epsilon=settings['epsilon']
  )

  def loss_fn(params, inputs, targets):
    results = apply(params, arguments, inputs, given['state'], matrix)
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


def _initial_state(settings: dict[str, Any], given: Arrays) -> Arrays:
  del given

  def initial_state():
    core = RelationalMemory(**settings['arguments'])
    return core.initial_state(settings['batch_size'])

  return {'state': _function(initial_state)({})}


def _fresh_weights(settings: dict[str, Any], given: Arrays) -> Arrays:
  def step():
    core = RelationalMemory(**settings['arguments'])
    return core(given['inputs'][0], given['state'])

  key = jax.random.key(settings['seed'])
  weights = to_sonnet(hk.transform(step).init(key))
  results = {}
  for index, (name, weight) in enumerate(weights.items()):
    unit = weight.shape[0] ** -0.5 if weight.ndim == 2 else 1.0
    label = f'{index} {name} {weight.shape}'
    results[f'{label} spread'] = weight.std() / unit
    results[f'{label} largest'] = abs(weight).max() / unit
  return {name: x.astype(given['state'].dtype) for name, x in results.items()}


def _refused(settings: dict[str, Any], given: Arrays) -> Arrays:
  del given
  try:
    _function(lambda: RelationalMemory(**settings['arguments']) and None)({})
  except (TypeError, ValueError) as error:
    return {f'refused with {type(error).__name__}': np.array(1.0)}
  return {'accepted': np.array(1.0)}


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
  'initial_state': _initial_state,
  'fresh_weights': _fresh_weights,
  'refused': _refused,
  'nth_farthest': _nth_farthest,
}


def _step(
  arguments: dict[str, Any], inputs: Any, state: Any, matrix: bool
) -> Arrays:
  """One call of the core, and separately the trace of that step."""
  core = RelationalMemory(**arguments)
  outputs, next_state = core(inputs[0], state, treat_input_as_matrix=matrix)
  (_, trace), _ = core.trace_step(core.project(inputs[0], matrix), state)
  outputs, trace = jax.tree.map(lambda x: x[None], (outputs, trace))
  return _results(outputs, next_state, trace)


def _steps(
  arguments: dict[str, Any], inputs: Any, state: Any, matrix: bool
) -> Arrays:
  """One `rmc_jax.unroll`, and separately the trace of an unroll."""
  core = RelationalMemory(**arguments)
  options: dict[str, Any] = {'treat_input_as_matrix': matrix}
  outputs, final = unroll(core, inputs, state, **options)
  (_, trace), _ = unroll(core, inputs, state, return_trace=True, **options)
  return _results(outputs, final, trace)


def _results(outputs: Any, state: Any, trace: Any) -> Arrays:
  gates = {f'{name}_gate': value for name, value in trace.gates.items()}
  results = {'outputs': outputs, 'state': state, 'attention': trace.attention}
  return results | gates


def _core_arguments(settings: dict[str, Any]) -> dict[str, Any]:
  return {**settings['arguments'], 'query_scale': settings['query_scale']}


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
