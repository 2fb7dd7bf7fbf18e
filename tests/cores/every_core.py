"""Every core at a small size, and what the tests of all cores share."""

import dataclasses
import functools

import haiku as hk
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.cores import build
from rmc_jax.cores.conv_lstm import ConvLSTMConfig
from rmc_jax.cores.dnc import DNCConfig
from rmc_jax.cores.drc import DRCConfig
from rmc_jax.cores.entity_network import EntityNetworkConfig
from rmc_jax.cores.lstm import LSTMConfig
from rmc_jax.cores.lstm_bank import LSTMBankConfig
from rmc_jax.cores.paper_relational_memory import PaperRelationalMemoryConfig
from rmc_jax.cores.relational_memory import RelationalMemoryConfig

B, T, FEATURES = 2, 4, 13

# At these sizes B rows are few beside every weight in the loop, so that unrolls
# defer the gradients of all weights.
_DNC = DNCConfig(
  memory_size=5, word_size=7, num_reads=3, num_writes=2, hidden_size=17
)
_SMALL = {
  'relational_memory': RelationalMemoryConfig(
    mem_slots=3, head_size=7, num_heads=5
  ),
  'paper_relational_memory': PaperRelationalMemoryConfig(
    mem_slots=3, head_size=7, num_heads=5
  ),
  'lstm': LSTMConfig(hidden_size=7, num_layers=2),
  'lstm_bank': LSTMBankConfig(total_size=23, num_cells=3),
  'lstm_bank, shared': LSTMBankConfig(
    total_size=53, num_cells=3, share_weights=True
  ),
  'entity_network': EntityNetworkConfig(num_slots=3, slot_size=29),
  'dnc': _DNC,
  'dnc, feed forward': dataclasses.replace(_DNC, controller='feed_forward'),
  # One channel of FEATURES cells.
  'conv_lstm': ConvLSTMConfig(rows=1, columns=FEATURES, output_channels=31),
  'drc': DRCConfig(
    rows=1,
    columns=FEATURES,
    output_channels=19,
    kernel_size=2,
    num_layers=2,
    num_repeats=2,
  ),
}


def _constructor(config):
  _, core = build.CORES[config.name]
  names = build.argument_names(type(config))
  return functools.partial(
    core, **{name: getattr(config, name) for name in names}
  )


# The name of a core, or that and a variant -> its configuration. A core without
# a small size has its defaults.
CONFIGS = {
  name: config_class() for name, (config_class, _) in build.CORES.items()
} | _SMALL
# The same -> a constructor without arguments.
CORES = {name: _constructor(config) for name, config in CONFIGS.items()}
every_core = pytest.mark.parametrize('build', CORES.values(), ids=CORES)

# Products of one row, a batch and a sequence may round differently.
ATOL = 5e-6


@functools.cache
def make(build):
  """Returns a transformed step, its parameters, inputs and a state."""

  def reach(inputs):
    core = build()
    return hk.dynamic_unroll(core, inputs, core.initial_state(B))[1]

  net = transform(reach)
  before = normal(T, B, FEATURES, seed=1)
  shapes = jax.eval_shape(net.init, jax.random.key(0), before)
  leaves, structure = jax.tree.flatten(shapes)
  # Initial biases are zero, which would hide a missing bias.
  params = structure.unflatten(
    normal(*leaf.shape, scale=0.3, seed=i) for i, leaf in enumerate(leaves)
  )
  # A state that the core can reach; arbitrary numbers may not be one.
  state = jax.jit(net.apply)(params, before)
  step = transform(lambda inputs, state: build()(inputs, state))
  return step, params, normal(B, FEATURES), state


def transform(f):
  """Transforms `f` without a random key in `apply`."""
  return hk.without_apply_rng(hk.transform(f))


def normal(*shape, scale=1.0, seed=0):
  rng = np.random.default_rng(seed)
  return jnp.asarray(scale * rng.normal(size=shape), jnp.float32)


def jit_without_cache(f):
  """Jits a copy of `f`, as JAX caches the trace of `f` with its old policy."""
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
