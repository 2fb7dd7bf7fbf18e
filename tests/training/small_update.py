"""A small network with batches and an initial state, for tests of updates."""

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.training import parallel
from rmc_jax.training.state import create_state
from rmc_jax.training.update import LossAux

B, T, X = 8, 3, 5  # Examples, steps, features.


def make_params():
  rng = np.random.default_rng(0)
  return {
    'hidden': rng.normal(size=(X, 7)).astype(np.float32),
    'out': rng.normal(size=(7,)).astype(np.float32),
  }


def errors(params, batch):
  """Returns the squared errors [B, T] of a small network."""
  outputs = jnp.tanh(batch['x'] @ params['hidden']) @ params['out']
  return (outputs - batch['y']) ** 2


def loss_fn(params, network_state, carry, key, batch):
  del key
  squared, mask = errors(params, batch), batch['mask']
  aux = LossAux(
    weight=mask.sum(),
    metrics={'largest': (squared.max(), 1), 'tokens': (mask.sum(), 1)},
    network_state=network_state,
    carry=carry,
  )
  return (squared * mask).sum(), aux


def make_batch(seed):
  """Returns a global batch whose quarters have 6, 3, 1 and 0 valid steps."""
  rng = np.random.default_rng(seed)
  mask = np.zeros((B, T), np.float32)
  mask[:2] = mask[2, :2] = mask[3, 0] = mask[5, 1] = 1
  return {
    'x': rng.normal(size=(B, T, X)).astype(np.float32),
    # Grows along the batch, so that the place of the mask matters.
    'y': rng.normal(size=(B, T)).astype(np.float32)
    + np.arange(B, dtype=np.float32)[:, None],
    'mask': mask,
  }


def sample(key, network_state):
  """Returns one example, for batches made on the device."""
  del network_state
  drawn = jax.random.uniform(key, (T, X + 2), minval=-1.0)
  return {
    'x': drawn[:, :X],
    'y': drawn[:, X],
    'mask': (drawn[:, X + 1] > -0.2).astype(jnp.float32),
  }


def start(optimizer, devices=None, network_state=None, params=None, carry=()):
  state = create_state(
    make_params() if params is None else params,
    network_state or {},
    optimizer,
    jax.random.key(1),
    carry,
  )
  return parallel.place_state(state, devices)
