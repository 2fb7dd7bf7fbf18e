"""Tests names, errors, transformations and unrolls of every core.

test_every_core_precision.py tests their precision.
"""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rmc_jax
from rmc_jax.cores import AttendingCore
from tests.cores.every_core import assert_close
from tests.cores.every_core import ATOL
from tests.cores.every_core import B
from tests.cores.every_core import CORES
from tests.cores.every_core import equations
from tests.cores.every_core import every_core
from tests.cores.every_core import FEATURES
from tests.cores.every_core import jit_without_cache
from tests.cores.every_core import make
from tests.cores.every_core import normal
from tests.cores.every_core import T
from tests.cores.every_core import transform


@pytest.mark.parametrize(
  'cls', [rmc_jax.RelationalMemory, rmc_jax.PaperRelationalMemory]
)
def test_initial_parameters_equal_sonnets(cls):
  # A normal truncated at two standard deviations has spread 0.8796.
  features = 400

  def step(x):
    core = cls(2, 20, 20)
    return core(x, core.initial_state(1))

  init = jax.jit(hk.transform(step).init)
  params = init(jax.random.key(0), jnp.ones((1, features)))
  for path, module in params.items():
    if 'norm' in path:
      np.testing.assert_array_equal(module['scale'], 1.0)
      np.testing.assert_array_equal(module['offset'], 0.0)
      continue
    scaled = np.asarray(module['w']) * np.sqrt(module['w'].shape[0])
    assert np.abs(scaled).max() <= 2.0 + 1e-5, path
    # 160,000 draws or more: ten standard errors.
    assert abs(scaled.std() - 0.8796) < 10 * 0.88 / np.sqrt(scaled.size), path
    if 'b' in module:
      np.testing.assert_array_equal(module['b'], 0.0)


@pytest.mark.parametrize('core', CORES)
def test_parameter_paths_of_nested_and_repeated_cores(core):
  name, build = core.split(',')[0], CORES[core]

  class Agent(hk.Module):
    def __call__(self, x):
      for core in (build(), build()):
        x, _ = core(x, core.initial_state(B))
      return x

  def alone(x):
    core = build()
    return core(x, core.initial_state(B))[0]

  def shapes(f, x):
    params = jax.eval_shape(transform(f).init, jax.random.key(0), x)
    return jax.tree.map(jnp.shape, params)

  inputs = jnp.ones((B, FEATURES))
  net = hk.testing.transform_and_run(alone)
  second = jnp.zeros(jax.eval_shape(net, inputs).shape)
  both = shapes(lambda x: Agent()(x), inputs)
  assert not [path for path in both if '~' in path]
  assert both == {
    **{f'agent/{path}': s for path, s in shapes(alone, inputs).items()},
    **{
      f'agent/{name}_1{path.removeprefix(name)}': s
      for path, s in shapes(alone, second).items()
    },
  }


@every_core
def test_works_inside_reset_core_and_deep_rnn(build):
  def wrapped(inputs, should_reset):
    core = hk.ResetCore(hk.DeepRNN([build(), hk.Linear(6), jnp.tanh]))
    never = jnp.zeros(B, bool)
    first = core.initial_state(B)
    _, state = core((0.5 * inputs, never), first)
    return core((inputs, should_reset), state), core((inputs, never), first)

  net = transform(wrapped)
  inputs, reset = normal(B, FEATURES), jnp.array([True, False])
  params = jax.jit(net.init)(jax.random.key(0), inputs, reset)
  (output, _), (from_start, _) = jax.jit(net.apply)(params, inputs, reset)
  assert output.shape == (B, 6)
  np.testing.assert_allclose(output[0], from_start[0], atol=ATOL)
  assert np.abs(output[1] - from_start[1]).max() > 1e-3


@every_core
def test_unbatched_one_example_and_vmap_equal_a_batch(build):
  net, params, inputs, state = make(build)
  expected = jit_without_cache(net.apply)(params, inputs, state)

  def example(where):
    return jax.tree.map(lambda x: x[where], (inputs, state))

  def same(how, actual):
    assert_close(actual, jax.tree.map(lambda x: x[how], expected))

  same(1, jit_without_cache(net.apply)(params, *example(1)))
  one = slice(1, 2)
  same(one, jit_without_cache(net.apply)(params, *example(one)))
  outside = jax.vmap(net.apply, in_axes=(None, 0, 0))
  same(..., jit_without_cache(outside)(params, inputs, state))
  inside = transform(lambda *args: hk.vmap(build(), split_rng=False)(*args))
  same(..., jit_without_cache(inside.apply)(params, inputs, state))


@every_core
def test_flattens_trailing_axes_and_accepts_an_empty_batch(build):
  net, params, inputs, state = make(build)
  output, _ = jit_without_cache(net.apply)(params, inputs, state)
  folded, _ = jit_without_cache(net.apply)(
    params, inputs.reshape(B, 1, FEATURES), state
  )
  np.testing.assert_allclose(folded, output, atol=ATOL)
  inputs, state = jax.tree.map(lambda x: x[:0], (inputs, state))
  empty, _ = jit_without_cache(net.apply)(params, inputs, state)
  assert empty.shape == (0, *output.shape[1:])


@pytest.mark.parametrize('core', CORES)
def test_refuses_mismatched_arguments(core):
  name, (net, params, inputs, state) = core.split(',')[0], make(CORES[core])
  with pytest.raises(TypeError, match=f'^{name}: inputs are int32'):
    net.apply(params, inputs.astype(int), state)
  message = rf'^{name}: .*\(3, 13\), expected \[2, features'
  with pytest.raises(ValueError, match=message):
    net.apply(params, jnp.ones((3, FEATURES)), state)
  leaves, structure = jax.tree.flatten(state)
  for i, leaf in enumerate(leaves):
    wrong = [leaf[..., :-1], leaf[None], leaf[0]]
    # Change one of several arrays; the others determine the batch.
    wrong = wrong if len(leaves) > 1 else wrong[:2]
    for other in wrong:
      others = [*leaves[:i], other, *leaves[i + 1 :]]
      with pytest.raises(ValueError, match=f'^{name}: '):
        net.apply(params, inputs, structure.unflatten(others))


@every_core
def test_hk_remat_of_the_core_keeps_the_gradients(build):
  _, params, inputs, state = make(build)

  def loss(remat, inputs, state):
    core = build()
    step = hk.remat(core) if remat else core
    return jnp.sum(hk.dynamic_unroll(step, inputs, state)[0] ** 2)

  sequence = jnp.stack([inputs, 0.5 * inputs, -inputs])
  gradients = []
  for remat in (False, True):
    net = transform(functools.partial(loss, remat))
    gradients.append(jax.jit(jax.grad(net.apply))(params, sequence, state))
  # The same sums, possibly in other fusions.
  assert_close(*gradients, atol=1e-4)


@every_core
def test_runs_under_pmap_with_typed_and_old_keys(build):
  net, params, inputs, state = make(build)
  for key in (jax.random.key(3), jax.random.PRNGKey(3)):
    fresh = jax.jit(net.init)(key, inputs, state)
    assert jax.tree.map(jnp.shape, fresh) == jax.tree.map(jnp.shape, params)
  stacked = jnp.stack([inputs, inputs + 1.0])
  mapped = jax.pmap(net.apply, in_axes=(None, 0, None))
  for output, x in zip(mapped(params, stacked, state)[0], stacked, strict=True):
    np.testing.assert_allclose(
      output, jit_without_cache(net.apply)(params, x, state)[0], atol=ATOL
    )


def unroll_by_hand(build, reset=None, lengths=None):
  """Returns the apply function of an unroll by single steps in Python.

  One example at a time if they differ. Only the step is compiled.
  """
  step = jit_without_cache(make(build)[0].apply)
  start = transform(lambda: build().initial_state(1)).apply
  parts = [(slice(0, B), T)]
  if lengths is not None:
    parts = [(slice(b, b + 1), length) for b, length in enumerate(lengths)]

  def apply(params, inputs, state):
    outputs, states = [], []
    for part, length in parts:
      now = jax.tree.map(lambda s, part=part: s[part], state)
      rows = []
      for t in range(length):
        if reset is not None and reset[t, part].all():
          now = start(params)
        row, now = step(params, inputs[t, part], now)
        rows.append(row)
      rows += (T - length) * [jnp.zeros_like(rows[0])]
      outputs.append(jnp.stack(rows))
      states.append(now)
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states)
    return jnp.concatenate(outputs, axis=1), joined

  return apply


def unroll_with(build, unroll, **kwargs):
  """Returns the compiled apply function of an unroll function."""
  net = transform(lambda *args: unroll(build(), *args, **kwargs))
  return jax.jit(net.apply)


def gradients(build, apply):
  """Returns gradients, outputs and last state of an unroll."""
  _, params, _, state = make(build)

  def loss(*args):
    results = apply(*args)
    # Distinct weights.
    weighted = [
      jnp.sum(x * normal(*x.shape, seed=2)) for x in jax.tree.leaves(results)
    ]
    return sum(weighted), results

  differentiate = jax.grad(loss, argnums=(0, 1, 2), has_aux=True)
  return differentiate(params, normal(T, B, FEATURES, seed=3), state)


@every_core
def test_unroll_equals_dynamic_unroll_and_single_steps(build):
  expected = gradients(build, unroll_by_hand(build))
  for path, gradient in jax.tree_util.tree_leaves_with_path(expected[0][0]):
    assert np.abs(gradient).max() > 0, path
  # Values of order 1 over T steps.
  for unroll in (hk.dynamic_unroll, rmc_jax.unroll):
    actual = gradients(build, unroll_with(build, unroll))
    assert_close(actual, expected, atol=1e-5)


@every_core
def test_unroll_with_resets_and_lengths_equals_single_steps(build):
  reset, lengths = np.zeros((T, B), bool), np.array([4, 2])
  # Reset in the last step only: all slots of an empty DNC have equal usage, and
  # from the second step on rounding decides which is written next.
  reset[3, 0] = reset[1, 1] = True
  reset[2, 1] = True  # after the end
  options = {'reset': reset, 'lengths': lengths}
  assert_close(
    gradients(build, unroll_with(build, rmc_jax.unroll, **options)),
    gradients(build, unroll_by_hand(build, **options)),
    atol=1e-5,
  )


@every_core
def test_backward_loop_computes_no_weight_gradient(build):
  _, params, _, state = make(build)
  inputs = jnp.ones((T, B, FEATURES))

  def weight_shaped_products_in_loop(**kwargs):
    net = transform(lambda *args: rmc_jax.unroll(build(), *args, **kwargs))
    gradient = jax.grad(lambda *args: jnp.sum(net.apply(*args)[0]))
    jaxpr = jax.make_jaxpr(gradient)(params, inputs, state).jaxpr
    loops = [e for e in jaxpr.eqns if e.primitive.name == 'scan']
    assert len(loops) == 2  # forwards and backwards
    weights = [sorted(w.shape) for w in jax.tree.leaves(params) if w.ndim > 1]
    # Of a convolution, the product over patches.
    weights += [
      sorted((w.size // w.shape[-1], w.shape[-1]))
      for w in jax.tree.leaves(params)
      if w.ndim == 4
    ]
    return sum(
      eqn.primitive.name == 'dot_general'
      and sorted(eqn.outvars[0].aval.shape) in weights
      for eqn in equations(loops[-1].params['jaxpr'].jaxpr)
    )

  assert weight_shaped_products_in_loop(defer_weight_gradients=False) > 0
  assert weight_shaped_products_in_loop() == 0


@pytest.mark.parametrize('option', ['treat_input_as_matrix', 'return_trace'])
@pytest.mark.parametrize(
  'core',
  [
    core
    for core, build in CORES.items()
    if not issubclass(build.func, AttendingCore)
  ],
)
def test_refuses_options_of_an_attending_core(core, option):
  build = CORES[core]
  message = f'{option}=True needs an AttendingCore.*Got: {build.func.__name__}'
  with pytest.raises(ValueError, match=message):
    gradients(build, unroll_with(build, rmc_jax.unroll, **{option: True}))
