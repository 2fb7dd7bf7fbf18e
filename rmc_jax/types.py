"""Names of array axes, and type aliases.

Shapes in this package use these letters:

  B  batch
  T  time, the steps of a sequence
  N  memory slots
  I  input rows joined to the memory: 1, or the rows of a matrix input
  H  attention heads
  K  key (and query) size of one head
  V  value size of one head, `head_size`
  D  slot width, H * V
  F  queries, keys and values of all heads, H * (2 * K + V)
  G  gate width: D for 'unit' gates, 1 for 'memory' gates
  L  blocks of attention in one step

`...` stands for any leading axes: none (unbatched), [B], or [T, B].
"""

from typing import Any

import jax
import numpy as np

Array = jax.Array
# On a device or on the host.
AnyArray = jax.Array | np.ndarray
# A nest of arrays: a batch, the state of a core, the parameters of a model.
ArrayTree = Any
