"""A small DNC with distinct sizes, its data and its NumPy reference."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmc_jax.cores.dnc import DNC
from rmc_jax.cores.dnc import DNCState
from tests.reference import dnc as reference

# All sizes differ: examples, steps, slots, word width, read and write heads,
# units and layers of the controller, outputs and inputs.
B, T, N, W, R, J, Y, LAYERS, OUT, FEATURES = 4, 8, 7, 5, 3, 2, 11, 3, 6, 13
SIZES = {
  'memory_size': N,
  'word_size': W,
  'num_reads': R,
  'num_writes': J,
  'hidden_size': Y,
  'num_layers': LAYERS,
  'output_size': OUT,
  # Small enough to clip many values.
  'clip_value': 0.6,
}

# float32 rounding on values of order 1, over up to 8 steps.
ATOL = 1e-5

both_controllers = pytest.mark.parametrize(
  'controller', ['lstm', 'feed_forward']
)


def make(controller='lstm', how=None, lead=(B,), zero_state=False, **kwargs):
  """Returns a transformed step or unroll, its parameters, inputs and state."""
  kwargs = {**SIZES, 'controller': controller, **kwargs}

  def forward(inputs, state):
    core = DNC(**kwargs)
    return how(core, inputs, state) if how else core(inputs, state)

  rng = np.random.default_rng(0)

  def normal(shape, scale=1.0):
    return jnp.asarray(scale * rng.normal(size=shape), jnp.float32)

  batch_size = lead[-1] if lead else None
  state = hk.testing.transform_and_run(
    lambda: DNC(**kwargs).initial_state(batch_size)
  )()
  if not zero_state:
    state = fill(state, rng)
  inputs = normal((*lead, FEATURES))
  net = hk.without_apply_rng(hk.transform(forward))
  shapes = jax.eval_shape(net.init, jax.random.key(0), inputs, state)
  # Initial biases are zero, which would hide a missing bias.
  params = jax.tree.map(lambda s: normal(s.shape, 0.4), shapes)
  return net, params, inputs, state


def make_double(*args, **kwargs):
  """Calls `make` in float64, which needs `jax.enable_x64`."""
  net, *rest = make(*args, **kwargs)
  return net, *jax.tree.map(lambda x: jnp.asarray(np.float64(x)), rest)


def fill(state, rng):
  """Returns a state like those after a few steps."""

  def uniform(like, total=0.9):
    x = rng.uniform(size=like.shape)
    return jnp.asarray(total * x / x.sum(-1, keepdims=True), jnp.float32)

  off_diagonal = 1 - jnp.eye(state.link.shape[-1])
  off_diagonal = jnp.broadcast_to(off_diagonal, state.link.shape)
  return DNCState(
    memory=jnp.asarray(rng.normal(size=state.memory.shape), jnp.float32),
    read_weights=uniform(state.read_weights),
    write_weights=uniform(state.write_weights),
    link=uniform(state.link) * off_diagonal / 2,
    precedence=uniform(state.precedence),
    usage=jnp.asarray(rng.uniform(size=state.usage.shape), jnp.float32),
    reads=jnp.asarray(rng.normal(size=state.reads.shape), jnp.float32),
    controller=jax.tree.map(
      lambda s: jnp.asarray(0.5 * rng.normal(size=s.shape), jnp.float32),
      state.controller,
    ),
  )


def reference_steps(params, inputs, state, clip_value=SIZES['clip_value']):
  """Returns the reference's outputs and last state for [T, B, features]."""
  params = jax.tree.map(np.float64, params)
  state = jax.tree.map(np.float64, state)._asdict()
  outputs = []
  for x in np.float64(inputs):
    output, state = reference.step(
      params, x, state, num_layers=LAYERS, clip_value=clip_value
    )
    outputs.append(output)
  layers = tuple(hk.LSTMState(*layer) for layer in state.pop('controller'))
  return np.stack(outputs), DNCState(**state, controller=layers)


def weighted_loss(apply, *args):
  """Sums outputs and last state with distinct weights."""
  rng = np.random.default_rng(1)
  return sum(
    jnp.sum(x * jnp.asarray(rng.normal(size=x.shape), x.dtype))
    for x in jax.tree.leaves(apply(*args))
  )


def assert_close(actual, expected, atol=ATOL):
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  for (path, a), e in zip(
    jax.tree_util.tree_leaves_with_path(actual),
    jax.tree.leaves(expected),
    strict=True,
  ):
    scale = max(1.0, np.abs(e).max(initial=0.0))
    np.testing.assert_allclose(a, e, atol=atol * scale, err_msg=str(path))
