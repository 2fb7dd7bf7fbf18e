"""Spares short stories most of the padding of the longest."""

import itertools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from rmc_jax.types import Array

_OF_STATEMENTS = 'story', 'time', 'supporting'


def skip_padding(
  network: hk.Transformed, sizes: np.ndarray, split: bool = True
) -> hk.Transformed:
  """Computes a network on stories cut to the shortest shape that holds them.

  The memory has 50 slots, but nine of ten stories have at most 16 statements.
  Where members are computed one after another (`training.map_members` on a
  CPU), a batch takes the time of its shape. On other devices all shapes would
  be computed, so the network is returned as it is.

  Args:
    network: (batch, *arguments) -> arrays [B, ...], which are the same if slots
      that are empty in the whole batch are left out.
    sizes: [G, 3], see `rmc_jax.models.memn2n.Sizes`; the batches have the slots
      of the largest.
    split: whether the last quarter of a batch has its own shape. This pays for
      batches sorted by length.
  """
  if jax.default_backend() != 'cpu':
    return network
  largest = int(sizes[:, 1].max())
  shapes = sorted({max(1, largest // n) for n in (6, 3, 1)})

  def cut_to(m):
    def apply(params, batch, *arguments):
      cut = {name: batch[name][:, :m] for name in _OF_STATEMENTS}
      return network.apply(params, batch | cut, *arguments)

    return apply

  def apply_part(params, part, *arguments):
    shape = jnp.searchsorted(jnp.array(shapes), _longest(part['story']))
    branches = list(map(cut_to, shapes))
    return jax.lax.switch(shape, branches, params, part, *arguments)

  def apply(params, batch, *arguments):
    size = len(batch['story'])
    bounds = {0, size - (size // 4 if split else 0), size}
    outputs = []
    for start, stop in itertools.pairwise(sorted(bounds)):
      part = {name: leaf[start:stop] for name, leaf in batch.items()}
      outputs.append(apply_part(params, part, *arguments))
    return jax.tree.map(lambda *x: jnp.concatenate(x), *outputs)

  return hk.Transformed(network.init, apply)


def _longest(story: Array) -> Array:
  """Returns the slots [] that the stories [B, M, J] need."""
  used = (story > 0).any((0, 2))  # [M]
  return jnp.where(used, jnp.arange(1, len(used) + 1), 0).max()
