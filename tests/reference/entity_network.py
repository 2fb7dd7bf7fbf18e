"""One step of a recurrent entity network in NumPy, slot by slot.

Written from equations (2) to (5) of Henaff et al. 2017, "Tracking the world
state with recurrent entity networks", with loops over examples and slots, in
the precision of what it is given.
"""

import numpy as np


def entity_network_step(params, inputs, slots, *, name='entity_network'):
  """Returns the next slots for inputs [B, features] and slots [B, N, D]."""
  layer = {path.removeprefix(f'{name}/'): p for path, p in params.items()}
  keys = layer['keys']['embeddings']
  slope = layer['prelu']['slope']
  next_slots = np.zeros_like(slots)
  for example, x in enumerate(inputs):
    s = x @ layer['input']['w'] + layer['input']['b']
    for j, (key, slot) in enumerate(zip(keys, slots[example], strict=True)):
      match = s @ slot + s @ key
      if 'gate_bias' in layer:
        match = match + layer['gate_bias']['b'][j]
      gate = 1.0 / (1.0 + np.exp(-match))
      z = slot @ layer['slot_candidate']['w'] + layer['slot_candidate']['b']
      z = z + key @ layer['key_candidate']['w']
      z = z + s @ layer['input_candidate']['w']
      candidate = np.array(
        [
          unit if unit > 0 else a * unit
          for unit, a in zip(z, slope, strict=True)
        ]
      )
      new = slot + gate * candidate
      next_slots[example, j] = new / np.sqrt(new @ new)
  return next_slots
