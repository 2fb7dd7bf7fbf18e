"""Unrolls of cores over random images, for the tests."""

import haiku as hk
import jax

from tests.cores.every_core import normal
from tests.cores.every_core import transform

T, B, ROWS, COLUMNS, INPUTS, CHANNELS = 4, 2, 5, 3, 6, 7
SIZE = {'rows': ROWS, 'columns': COLUMNS, 'output_channels': CHANNELS}


def unrolled(make_core):
  def run(xs):
    core = make_core()
    return hk.dynamic_unroll(core, xs, core.initial_state(B))

  return transform(run)


def sequence():
  return normal(T, B, ROWS, COLUMNS, INPUTS)


def randomised(params):
  """Replaces initial parameters, whose biases are zero."""
  leaves, structure = jax.tree.flatten(params)
  return structure.unflatten(
    normal(*leaf.shape, scale=0.2, seed=i) for i, leaf in enumerate(leaves)
  )
