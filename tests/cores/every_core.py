"""The cores that all do the same, and what their tests are made of."""

import functools

import haiku as hk
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

import rmc_jax
from rmc_jax.cores.dnc import DNC
from rmc_jax.cores.entity_network import EntityNetwork
from rmc_jax.cores.lstm import LSTM
from rmc_jax.cores.lstm_bank import LSTMBank

B, T, FEATURES = 2, 4, 13

# The module's name, or that and a variant. Sizes at which B rows are few beside
# every weight in the loop, so that unrolls defer its gradient.
CORES = {
  'relational_memory': functools.partial(rmc_jax.RelationalMemory, 3, 7, 5),
  'paper_relational_memory': functools.partial(
    rmc_jax.PaperRelationalMemory, 3, 7, 5
  ),
  'lstm': functools.partial(LSTM, 7, num_layers=2),
  'lstm_bank': functools.partial(LSTMBank, 23, 3),
  'lstm_bank, shared': functools.partial(LSTMBank, 53, 3, share_weights=True),
  'entity_network': functools.partial(EntityNetwork, 3, 29),
  'dnc': functools.partial(DNC, 5, 7, 3, 2, 'lstm', 17, 2),
  'dnc, feed forward': functools.partial(
    DNC, 5, 7, 3, 2, 'feed_forward', 17, 2
  ),
}
every_core = pytest.mark.parametrize('build', CORES.values(), ids=CORES)

# Products of one row, of a batch and of a sequence may round differently.
ATOL = 5e-6


@functools.cache
def make(build):
  """A transformed step, filled parameters, inputs and a state."""

  def reach(inputs):
    core = build()
    return hk.dynamic_unroll(core, inputs, core.initial_state(B))[1]

  net = transform(reach)
  before = normal(T, B, FEATURES, seed=1)
  shapes = jax.eval_shape(net.init, jax.random.key(0), before)
  leaves, structure = jax.tree.flatten(shapes)
  # Not the initial values: there a missing bias would go unnoticed.
  params = structure.unflatten(
    normal(*leaf.shape, scale=0.3, seed=i) for i, leaf in enumerate(leaves)
  )
  # A state that the core reaches: not any numbers make one.
  state = jax.jit(net.apply)(params, before)
  step = transform(lambda inputs, state: build()(inputs, state))
  return step, params, normal(B, FEATURES), state


def transform(f):
  """`f` of `apply(params, *args)`; no core draws random numbers."""
  return hk.without_apply_rng(hk.transform(f))


def normal(*shape, scale=1.0, seed=0):
  rng = np.random.default_rng(seed)
  return jnp.asarray(scale * rng.normal(size=shape), jnp.float32)


def anew(f):
  """Jitted `f`, traced now: JAX remembers the old trace, policy and all."""
  return jax.jit(lambda *args: f(*args))


def equations(jaxpr):
  for eqn in jaxpr.eqns:
    yield eqn
    for inner in jax.extend.core.jaxprs_in_params(eqn.params):
      yield from equations(inner)


def assert_close(actual, expected, atol=ATOL):
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  for a, e in zip(
    jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    scale = max(1.0, np.abs(e).max())  # gradients add up over T * B rows
    np.testing.assert_allclose(a, e, atol=atol * scale)
