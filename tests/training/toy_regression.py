"""Noisy linear regression that trains in a second.

y = x A + noise, x [3], y [5]. The linear model has dropout on x, so that the
key, the step and the data affect every update.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rmc_jax.training.evaluate import make_evaluate_generated
from rmc_jax.training.nonfinite import NonfiniteConfig
from rmc_jax.training.run import Experiment
from rmc_jax.training.run import FunctionSource
from rmc_jax.training.run import RunConfig
from rmc_jax.training.runner import train
from rmc_jax.training.state import create_state
from rmc_jax.training.state import TrainState
from rmc_jax.training.update import LossAux
from rmc_jax.training.update import make_update
from rmc_jax.training.update import per_example

BATCH = 8
INPUTS, OUTPUTS = 3, 5


def optimizer() -> optax.GradientTransformation:
  return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))


def init(outputs: int = OUTPUTS) -> TrainState:
  params = {
    'linear': {
      'w': jnp.zeros((INPUTS, outputs)),
      'b': jnp.zeros((outputs,)),
    }
  }
  network_state = {'calls': jnp.zeros((), jnp.int32)}
  return create_state(params, network_state, optimizer(), jax.random.key(1))


def sample(key, network_state=None):
  del network_state
  x_key, noise_key = jax.random.split(key)
  x = jax.random.normal(x_key, (INPUTS,))
  noise = 0.1 * jax.random.normal(noise_key, (OUTPUTS,))
  return {'x': x, 'y': x @ jnp.ones((INPUTS, OUTPUTS)) + noise}


def batch_at(step: int):
  """Returns the host batch of `step`, [8, 3] and [8, 5]."""
  generator = np.random.default_rng((7, step))
  x = generator.normal(size=(BATCH, INPUTS)).astype(np.float32)
  return {'x': x, 'y': x @ np.ones((INPUTS, OUTPUTS), np.float32)}


def loss_fn(params, network_state, carry, key, batch):
  kept = jax.random.bernoulli(key, 0.9, batch['x'].shape)
  error = _errors(params, {**batch, 'x': batch['x'] * kept})
  return error.sum(), LossAux(
    weight=jnp.asarray(error.size, jnp.float32),
    metrics={'close': ((error < 1).sum(), jnp.asarray(error.size))},
    network_state={'calls': network_state['calls'] + 1},
    carry=carry,
  )


@functools.cache
def evaluate():
  """Returns the evaluation of 19 examples: two full batches and a partial."""
  return make_evaluate_generated(
    lambda params, _, batch: {
      'error': (_errors(params, batch), jnp.ones(batch['x'].shape[0]))
    },
    sample,
    jax.random.key(3),
    num_examples=19,
    global_batch_size=BATCH,
  )


def run(workdir, num_steps: int = 40, updates_per_call: int = 2, **changes):
  """Trains the toy; `changes` replace fields of Experiment and RunConfig."""
  functions = {
    'init': init,
    'update': update(updates_per_call),
    'evaluate': evaluate(),
  }
  numbers = {
    'num_steps': num_steps,
    'updates_per_call': updates_per_call,
    'log_every': 2,
    'eval_every': 6,
    'checkpoint_every': 10,
    'nonfinite': NonfiniteConfig(),
  }
  if 'batch_at' in changes:
    changes['source'] = FunctionSource(changes.pop('batch_at'))
  for name, value in changes.items():
    chosen = functions if name in Experiment._fields else numbers
    chosen[name] = value
  return train(workdir, Experiment(**functions), RunConfig(**numbers))


@functools.cache  # Compiled once for all runs.
def update(updates_per_call: int = 2, loss_fn=loss_fn):
  return make_update(
    loss_fn,
    optimizer(),
    global_batch_size=BATCH,
    make_batch=per_example(sample),
    updates_per_call=updates_per_call,
  )


@functools.cache
def host_update():
  """Returns the same update, for the batches of `batch_at`."""
  return make_update(loss_fn, optimizer(), global_batch_size=BATCH)


def _errors(params, batch):
  predictions = batch['x'] @ params['linear']['w'] + params['linear']['b'][None]
  return ((predictions - batch['y']) ** 2).sum(-1)  # [B]
