"""The program of each process of a job in test_distributed.py.

Usage: job_program.py OUTPUT [HOST:PORT COUNT ID]. Writes the results to OUTPUT,
an npz file. The global batches are the same for any number of processes.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax import training
from rmc_jax.training import distributed
from rmc_jax.training import parallel

B, X = 6, 3  # Examples in a global batch, features.
STEPS = 4


def main(output, address=None, count=None, process=None):
  distributed.initialize(
    address, count and int(count), process and int(process)
  )
  optimizer = training.make_optimizer(
    training.OptimizerConfig(learning_rate=1e-2, clip_global_norm=1.0)
  )
  results = {'primary': distributed.is_primary()}
  for kind, make_key in (
    ('typed', jax.random.key),
    ('old', jax.random.PRNGKey),
  ):
    state = parallel.place_state(
      training.create_state(make_params(), {}, optimizer, make_key(0))
    )
    state, losses = train_on_host_batches(state, optimizer)
    state, more_losses = train_on_generated(state, optimizer)
    parallel.assert_replicated(state)
    results[f'{kind}_losses'] = losses + more_losses
    for name, values in state.params.items():
      results[f'{kind}_{name}'] = np.asarray(values)

  results['evaluation'] = evaluate(state)
  results['divergence'] = describe_divergence(state)
  distributed._BROADCAST_BYTES = 64  # So that there are several parts.
  results['from_primary'] = distributed.from_primary(
    lambda: np.float32([-0.0, 5])
  )
  results['from_primary_error'] = describe_error_of_primary()
  np.savez(output, **results)
  distributed.shutdown()


def make_params():
  rng = np.random.default_rng(0)
  return {
    'hidden': rng.normal(size=(X, 5)).astype(np.float32),
    'out': rng.normal(size=(5,)).astype(np.float32),
  }


def squared_errors(params, batch):
  outputs = jnp.tanh(batch['x'] @ params['hidden']) @ params['out']  # [B]
  return (outputs - batch['x'].sum(-1)) ** 2


def loss_fn(params, network_state, carry, key, batch):
  del key
  squared, weights = squared_errors(params, batch), batch['weight']
  return (squared * weights).sum(), training.LossAux(
    weights.sum(), {'largest': (squared.max(), 1)}, network_state, carry
  )


def train_on_host_batches(state, optimizer):
  """The weights of the two halves differ: 2.5 and 0.5."""
  update = training.make_update(loss_fn, optimizer, global_batch_size=B)
  rows, losses = parallel.process_rows(B), []
  for step in range(STEPS):
    x = np.random.default_rng(step).normal(size=(B, X)).astype(np.float32)
    weight = np.float32([1, 1, 0.5, 0, 0.5, 0])
    batch = {'x': x[rows], 'weight': weight[rows]}
    state, metrics = update(state, parallel.split_batch(batch))
    losses.append(float(metrics['loss'][0]))
  return state, losses


def sample(key, network_state):
  del network_state
  drawn = jax.random.uniform(key, (X + 1,))
  return {'x': drawn[:X], 'weight': drawn[X]}


def train_on_generated(state, optimizer):
  update = training.make_update(
    loss_fn,
    optimizer,
    global_batch_size=B,
    make_batch=training.per_example(sample),
    updates_per_call=2,
  )
  losses = []
  for _ in range(STEPS // 2):
    state, metrics = update(state)
    losses.append(float(metrics['loss'][0]))
  return state, losses


def evaluate(state):
  def metric_fn(params, network_state, batch):
    del network_state
    return {'loss': (squared_errors(params, batch), jnp.ones(len(batch['x'])))}

  # 7 examples in batches of 6: the last batch has one, on one process.
  x = np.random.default_rng(9).normal(size=(7, X)).astype(np.float32)
  run = training.make_evaluate(metric_fn, {'x': x}, global_batch_size=B)
  return run(state)['loss']


def describe_divergence(state):
  """Returns the error of the replica check for a second device that differs."""
  out = state.params['out']
  copies = []
  for shard in out.addressable_shards:
    is_second = shard.device == jax.devices()[1]
    copies.append(jax.device_put(shard.data + float(is_second), shard.device))
  altered = jax.make_array_from_single_device_arrays(
    out.shape, out.sharding, copies
  )
  params = state.params | {'out': altered}
  try:
    parallel.assert_replicated(state._replace(params=params))
  except RuntimeError as error:
    return str(error)
  return 'nothing'


def describe_error_of_primary():
  def fail():
    raise OSError(f'{jax.process_index()}: no file')

  try:
    distributed.from_primary(fail)
  except OSError as error:
    return repr(error)
  return 'nothing'


if __name__ == '__main__':
  main(*sys.argv[1:])
