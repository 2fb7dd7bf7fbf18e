"""Tests rmc_jax/cores/dnc.py over sequences."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rmc_jax
from tests.cores.small_dnc import assert_close
from tests.cores.small_dnc import B
from tests.cores.small_dnc import both_controllers
from tests.cores.small_dnc import make
from tests.cores.small_dnc import make_double
from tests.cores.small_dnc import reference_steps
from tests.cores.small_dnc import T
from tests.cores.small_dnc import weighted_loss

# After the first write to an empty memory, the usage of free slots differs by
# 10^-6, then 10^-12, ... With more slots than these, rounding decides which is
# the least used and is written next, even in float64.
FEW_SLOTS = 4


def python_loop(core, inputs, state):
  outputs = []
  for x in inputs:
    output, state = core(x, state)
    outputs.append(output)
  return jnp.stack(outputs), state


@both_controllers
@pytest.mark.parametrize(
  'how',
  [
    rmc_jax.unroll,
    hk.dynamic_unroll,
    python_loop,
  ],
)
def test_unroll_equals_the_reference(controller, how):
  net, params, inputs, state = make(controller, how, lead=(T, B))
  assert_close(
    jax.jit(net.apply)(params, inputs, state),
    reference_steps(params, inputs, state),
  )


@both_controllers
def test_unroll_from_an_empty_memory_equals_the_reference(controller):
  with jax.enable_x64(True):
    net, params, inputs, state = make_double(
      controller,
      rmc_jax.unroll,
      lead=(T, B),
      zero_state=True,
      memory_size=FEW_SLOTS,
    )
    got = jax.jit(net.apply)(params, inputs, state)
    # float64 rounding, amplified where slots are almost alike.
    assert_close(got, reference_steps(params, inputs, state), atol=1e-9)


@both_controllers
def test_gradients_of_all_unrolls_agree(controller):
  gradients = []
  for how in (
    rmc_jax.unroll,
    functools.partial(rmc_jax.unroll, remat=True),
    hk.dynamic_unroll,
  ):
    net, params, inputs, state = make(controller, how, lead=(T, B))
    loss = functools.partial(weighted_loss, net.apply)
    gradients.append(
      jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(params, inputs, state)
    )
  for path, leaf in jax.tree_util.tree_leaves_with_path(gradients[0]):
    # The last step's write weights affect no output.
    if 'write_weights' in str(path):
      np.testing.assert_array_equal(leaf, 0.0)
    else:
      assert np.abs(leaf).max() > 0, path
  for other in gradients[1:]:
    # Sums over T * B rows in different orders.
    assert_close(other, gradients[0], atol=1e-4)


@both_controllers
@pytest.mark.parametrize('params_too', [True, False])
def test_gradients_are_finite_if_all_slots_are_alike(controller, params_too):
  net, params, inputs, state = make(
    controller, rmc_jax.unroll, lead=(T, B), zero_state=True
  )
  if params_too:
    params = jax.tree.map(jnp.zeros_like, params)
  loss = functools.partial(weighted_loss, net.apply)
  gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(params, inputs, state)
  for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
    assert np.isfinite(leaf).all(), path


def test_invariants_hold_over_a_long_sequence():
  net, params, inputs, state = make(
    how=functools.partial(rmc_jax.unroll, return_all_states=True),
    lead=(30, B),
    zero_state=True,
    clip_value=None,
  )
  # Gates and strengths over their whole range.
  params['dnc/interface'] = jax.tree.map(
    lambda x: 5 * x, params['dnc/interface']
  )
  _, states = jax.jit(net.apply)(params, inputs, state)
  for x in (
    states.usage[..., None],
    states.read_weights,
    states.write_weights,
    states.precedence,
    states.link,
    states.link.swapaxes(-1, -2),
  ):
    # Sums of 7 numbers, each rounded over 30 steps.
    assert x.min() >= -1e-6
    assert x.sum(axis=-1).max() <= 1 + 1e-5
  np.testing.assert_array_equal(
    jnp.diagonal(states.link, axis1=-2, axis2=-1), 0.0
  )
  assert states.usage.max() > 0.9
  assert states.link.max() > 0.3


@both_controllers
def test_reset_and_lengths_in_an_unroll(controller):
  reset = jnp.zeros((T, B), bool).at[5, 1].set(True).at[2, 3].set(True)
  lengths = jnp.array([T, 7, 0, 3])
  how = functools.partial(rmc_jax.unroll, reset=reset, lengths=lengths)
  with jax.enable_x64(True):
    net, params, inputs, state = make_double(
      controller, how, lead=(T, B), memory_size=FEW_SLOTS
    )
    outputs, last = jax.jit(net.apply)(params, inputs, state)
    for b, (start, end) in enumerate(((0, 8), (5, 7), (0, 0), (2, 3))):
      expected = jax.tree.map(lambda s, b=b: s[b : b + 1], state)
      if start:
        expected = jax.tree.map(jnp.zeros_like, expected)
      if end:
        rows, expected = reference_steps(
          params, inputs[start:end, b : b + 1], expected
        )
        np.testing.assert_allclose(outputs[start:end, b], rows[:, 0], atol=1e-9)
      np.testing.assert_array_equal(outputs[end:, b], 0.0)
      ours = jax.tree.map(lambda s, b=b: s[b : b + 1], last)
      assert_close(ours, expected, atol=1e-9)
