"""Spares tasks of short stories most of the padding of the longest.

The members of an ensemble have arrays of the same shape, those of the longest
stories: 50 statements, although 14 of the 20 tasks have at most 15.
"""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np


def skip_padding(network: hk.Transformed, sizes: np.ndarray) -> hk.Transformed:
  """Computes a network on arrays cut to one of two shapes.

  Members that are computed one after another (`training.map_members`) take the
  time of their shape; computed at once, all take the time of both.

  Args:
    network: (batch, *arguments) -> arrays [B, C], such as logits, and
      [B, K, M], such as attention, for any M and J.
    sizes: [G, 3], see `rmc_jax.models.memn2n.Sizes`.
  """
  memory = sizes[:, 1]
  longest = memory.max()
  # The bound with the fewest slots in all tasks together.
  bound = min(memory, key=lambda m: np.where(memory <= m, m, longest).sum())
  if bound == longest:
    return network

  def shape_of(chosen):
    return tuple(map(int, sizes[chosen, 1:].max(0)))

  def cut_to(shape):
    m, j = shape

    def apply(params, batch, *arguments):
      cut = {
        'story': batch['story'][:, :m, :j],
        'question': batch['question'][:, :j],
        'time': batch['time'][:, :m],
      }
      outputs = network.apply(params, batch | cut, *arguments)
      padding = [(0, 0), (0, 0), (0, int(longest) - m)]
      return jax.tree.map(
        lambda x: jnp.pad(x, padding) if x.ndim == 3 else x, outputs
      )

    return apply

  branches = cut_to(shape_of(memory <= bound)), cut_to(shape_of(memory > bound))

  def apply(params, batch, *arguments):
    is_short = batch['sizes'][0, 1] <= bound  # The same in the whole batch.
    return jax.lax.cond(is_short, *branches, params, batch, *arguments)

  return hk.Transformed(network.init, apply)
