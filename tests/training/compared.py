"""What tests compare of two runs: their bits and their metrics."""

import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.training.log import read_metrics


def bits(tree):
  """Returns the bytes of every leaf, to compare -0. and nan exactly."""
  return [
    np.asarray(
      jax.random.key_data(leaf)
      if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
      else leaf
    ).tobytes()
    for leaf in jax.tree.leaves(tree)
  ]


def metrics_of(workdir):
  """Returns the lines of metrics.jsonl without "time"."""
  return [
    {key: value for key, value in line.items() if key != 'time'}
    for line in read_metrics(workdir)
  ]
