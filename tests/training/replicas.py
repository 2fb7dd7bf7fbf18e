"""Makes replicas that differ, as after a hardware fault."""

import jax
import numpy as np


def with_flipped_bit(array, replica):
  """Flips the lowest bit of element 1 on one replica of a replicated array."""
  shards = []
  for i, shard in enumerate(array.addressable_shards):
    words = np.array(shard.data)
    if i == replica:
      words.reshape(-1).view(f'u{words.itemsize}')[1] ^= 1
    shards.append(jax.device_put(words, shard.device))
  return jax.make_array_from_single_device_arrays(
    array.shape, array.sharding, shards
  )
