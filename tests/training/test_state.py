"""Tests rmc_jax/training/state.py."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rmc_jax.training import state as state_lib

PARAMS = {'linear': {'w': np.ones((3, 5), np.float32), 'b': np.zeros(5)}}


@pytest.mark.parametrize('make_key', [jax.random.key, jax.random.PRNGKey])
def test_new_state_has_step_zero_and_the_given_key(make_key):
  optimizer = optax.adam(1e-3)
  state = state_lib.create_state(PARAMS, {}, optimizer, make_key(3))
  assert state.step.shape == ()
  assert state.step.dtype == jnp.int32
  assert state.step == 0
  assert state.key.dtype == make_key(3).dtype
  assert jax.tree.structure(state.opt_state) == jax.tree.structure(
    optimizer.init(PARAMS)
  )


@pytest.mark.parametrize('key', [3, np.zeros(2, np.uint32), None])
def test_invalid_key_raises(key):
  with pytest.raises(ValueError, match=r'jax\.random\.key\(seed\)'):
    state_lib.create_state(PARAMS, {}, optax.sgd(1.0), key)


@pytest.mark.parametrize('make_key', [jax.random.key, jax.random.PRNGKey])
def test_batch_of_keys_raises(make_key):
  keys = jax.random.split(make_key(0), 3)
  with pytest.raises(ValueError, match='single key'):
    state_lib.create_state(PARAMS, {}, optax.sgd(1.0), keys)


def test_dealias_copies_every_leaf():
  shared = jnp.arange(4.0)
  key = jax.random.key(0)
  tree = {'ema': shared, 'w': shared, 'n': np.arange(3), 'key': key}
  copy = state_lib.dealias(tree)
  pointers = {
    leaf.unsafe_buffer_pointer()
    for leaf in (copy['ema'], copy['w'], shared, copy['n'])
  }
  assert len(pointers) == 4
  np.testing.assert_array_equal(copy['ema'], shared)
  np.testing.assert_array_equal(copy['n'], tree['n'])
  assert copy['key'] == key


def test_count_parameters_needs_shapes_only():
  shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, PARAMS))
  assert state_lib.count_parameters(PARAMS) == 3 * 5 + 5
  assert state_lib.count_parameters(shapes) == 3 * 5 + 5
